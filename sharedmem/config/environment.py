"""Environment variables: which are settings, which belong to others, and which are likely misspelt."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Mapping

from sharedmem.config.files import CONFIG_VARIABLE

TOKEN_VARIABLE = "SHAREDMEM_FENCING_TOKEN"  # noqa: S105  # a fencing token is no secret
"""What `sharedmem lock NAME -- COMMAND` tells the command."""

_PREFIX = "SHAREDMEM_"
# No settings, and ours all the same; what begins with the last one steers our tests.
_BESIDE_SETTINGS = frozenset({CONFIG_VARIABLE, TOKEN_VARIABLE, "SHAREDMEM_CRASH_ROUNDS"})
_OF_TESTS = "SHAREDMEM_TEST_"
# What Kubernetes sets in every container for a service whose name begins with `sharedmem`.
_OF_A_SERVICE = re.compile(r"\w+_SERVICE_(HOST|PORT(_\w+)?)|\w+_PORT_\d+_(TCP|UDP|SCTP)(_(PROTO|PORT|ADDR))?")
_ADDRESS_OF_A_SERVICE = re.compile(r"(tcp|udp|sctp)://")


def variable_of(field: str) -> str:
    """The variable that sets a field."""
    return _PREFIX + field.upper()


def unknown_variables(environment: Mapping[str, str], fields: Iterable[str]) -> list[str]:
    """The names that begin with `SHAREDMEM_`, hold something, and are neither settings nor known to be others'."""
    known = _BESIDE_SETTINGS.union(map(variable_of, fields))
    return sorted(
        name
        for name, value in environment.items()
        if value and name.upper().startswith(_PREFIX) and name not in known and not _is_of_others(name, value)
    )


def _is_of_others(name: str, value: str) -> bool:
    if name.startswith(_OF_TESTS) or _OF_A_SERVICE.fullmatch(name):
        return True
    return name.endswith("_PORT") and _ADDRESS_OF_A_SERVICE.match(value) is not None


def meant_instead(variable: str, fields: Collection[str]) -> str:
    """What to do about a variable that is unknown, in words."""
    from difflib import get_close_matches  # noqa: PLC0415  # only a mistake needs it

    names = [*fields, CONFIG_VARIABLE.removeprefix(_PREFIX).lower()]
    near = get_close_matches(variable.upper().removeprefix(_PREFIX).lower(), names, n=1)
    return f"did you mean {variable_of(near[0])}?" if near else "unset it; `sharedmem config` lists all settings"
