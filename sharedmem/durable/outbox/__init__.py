"""The way of a change into the durable tier: it waits in an outbox, and workers carry it."""
