"""The ways in from outside: each translates, none decides."""
