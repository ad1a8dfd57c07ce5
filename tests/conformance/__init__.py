"""Conformance suites for every way to a store: inherited by test files, not shipped."""
