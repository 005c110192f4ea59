"""HTTP: the klein tree, the answers, the road of a request from client to model."""
