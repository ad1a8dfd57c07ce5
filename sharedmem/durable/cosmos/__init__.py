"""Azure Cosmos DB as a durable store."""
