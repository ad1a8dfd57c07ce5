"""The durable tier: the store for data that must survive a loss of Redis."""
