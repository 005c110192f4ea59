"""lswap: a proxy that runs more local AI models than fit into memory, one request at a time."""

__version__ = "0.1.0"
