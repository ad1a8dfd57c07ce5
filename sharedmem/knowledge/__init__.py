"""What agents decided, lived through and know."""
