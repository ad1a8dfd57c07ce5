"""Scenarios that break a server, a network or a process under load, and judge what callers were promised.

`make chaos` runs them all; `python -m chaos --list` (with `tests` on the path) says what each of them tries.
"""
