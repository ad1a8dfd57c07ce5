"""Delivery of changes to the durable tier: they wait in an outbox, and workers deliver them."""
