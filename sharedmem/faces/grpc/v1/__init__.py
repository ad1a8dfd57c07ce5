"""Version 1 of the gRPC service: `memory.proto`, and its messages in Python."""
