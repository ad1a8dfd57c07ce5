"""What agent frameworks expect of a memory, on sharedmem: one package for each framework."""
