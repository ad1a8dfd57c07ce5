"""What agent frameworks expect of a memory, on sharedmem: one package or module for each framework."""
