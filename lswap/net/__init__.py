"""Edges: whatever touches sockets, processes and files."""
