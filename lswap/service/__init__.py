"""Composition: one owner a model, the router, logs. Machines of `core` joined to edges of `net`."""
