"""How sharedmem speaks to Redis."""
