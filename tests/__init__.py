"""Tests."""

from hypothesis import HealthCheck, settings

# How long one example takes says nothing here: machines are loaded, and the first one also makes tables of characters.
settings.register_profile("lswap", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("lswap")
