"""The decision log: what agents plan and execute, so that nothing is decided or executed twice."""
