"""Providers: who turns texts into vectors, and who writes text."""
