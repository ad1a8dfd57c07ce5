"""Task queues: producers, consumers, workers and administration of one queue."""
