"""What the tests share: faults, waiting, the checker of histories, the runner of documentation pages."""
