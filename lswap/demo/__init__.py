"""What `make run` shows: a real llama.cpp server and a tiny stand-in behind the flags of llama-server."""
