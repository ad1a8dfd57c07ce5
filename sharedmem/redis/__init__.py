"""Access to Redis: connections, keys, access rules, values. Independent of the domain packages."""
