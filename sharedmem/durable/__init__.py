"""The durable tier: what must last beyond Redis."""
