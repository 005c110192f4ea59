"""`lswap-wol`: a small proxy that is always on, before a host that sleeps; read `lswap.wol.options` first."""
