"""Decisions: pure values in, pure values out. No reactor, clock, socket or file of its own."""
