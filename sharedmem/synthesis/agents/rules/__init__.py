"""Agents that follow rules: no model, no network, the same answer every time."""
