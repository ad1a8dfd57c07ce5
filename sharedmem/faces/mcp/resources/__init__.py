"""Resources: memories, threads and shared values under addresses, with subscriptions from the change feed."""
