"""Coordination: locks, leaders, barriers, rate limits, once, presence and task queues. Most use leases that expire."""
