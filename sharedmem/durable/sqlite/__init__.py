"""A SQLite file as a durable store."""
