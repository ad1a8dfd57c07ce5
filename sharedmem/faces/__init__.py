"""Interfaces for other processes and people: command line, REST, gRPC, Prometheus. They only translate."""
