"""Whole namespaces in files and back, and from one place to another."""
