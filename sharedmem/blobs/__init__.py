"""Large values outside Redis: in a folder or in Azure Blob Storage, and the collection of unreferenced ones."""
