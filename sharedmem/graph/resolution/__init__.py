"""Entity resolution: which entity a name means."""
