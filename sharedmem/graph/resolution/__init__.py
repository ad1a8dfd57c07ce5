"""Entity resolution: find the entity that a name means."""
