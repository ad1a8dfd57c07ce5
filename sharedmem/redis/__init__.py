"""How sharedmem speaks to Redis: connections, keys, access rules, values. It knows no domain."""
