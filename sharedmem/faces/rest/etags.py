"""Versions of values as ETag, If-Match and If-None-Match."""

from __future__ import annotations

import re
from typing import Any

from starlette.responses import Response

from sharedmem.errors import SharedMemoryError, VersionConflictError
from sharedmem.faces.rest.context import Call
from sharedmem.faces.rest.problems import FieldsError, PreconditionError
from sharedmem.models import Entry

_TAG = re.compile(r'(W/)?"([^"]*)"')
_UNVERSIONED = "; a counter, or a string that another client has set, is written without If-Match"
_TAGS = re.compile(r'\s*(?:W/)?"[^"]*"\s*(?:,\s*(?:W/)?"[^"]*"\s*)*')


def etag_of(version: int) -> str:
    """The ETag of a version."""
    return f'"{version}"'


def not_modified(call: Call, entry: Entry) -> Response | None:
    """A 304, when the caller has this version already.

    Raises:
        PreconditionError: the caller wants another version.
        FieldsError: a header is not as it should be.
    """
    matches = call.header("if-match")
    if matches is not None and not _matches_version(matches, entry.version, "if-match", weakly=False):
        raise PreconditionError(f"the value is at version {entry.version}, which If-Match does not name")
    knows = call.header("if-none-match")
    if knows is None or not _matches_version(knows, entry.version, "if-none-match", weakly=True):
        return None
    return Response(status_code=304, headers={"etag": etag_of(entry.version)})


async def write_condition(call: Call) -> dict[str, Any]:
    """What a conditional write expects, as the operation takes it. `If-Match: *` asks for the version: one round trip.

    Raises:
        PreconditionError: there has to be a value, and is none.
        FieldsError: a header is not as it should be.
    """
    matches, knows = call.header("if-match"), call.header("if-none-match")
    if matches is not None and knows is not None:
        raise FieldsError([("if-match", "give If-Match or If-None-Match, not both")])
    if knows is not None:
        if knows.strip() != "*":
            raise FieldsError([("if-none-match", "give * here: write only when there is no value yet")])
        return {"if_version": 0}
    return {} if matches is None else {"if_version": await _version(call, matches.strip())}


def precondition_error(call: Call, error: SharedMemoryError) -> SharedMemoryError:
    """A conflict of versions is told as a failed precondition to those who gave one."""
    asked = call.header("if-match") is not None or call.header("if-none-match") is not None
    return PreconditionError(str(error)) if asked and isinstance(error, VersionConflictError) else error


async def _version(call: Call, header: str) -> int:
    if header == "*":
        entry = await call.store.entry(call.params["key"])
        if entry is None:
            raise PreconditionError("there is no value, as If-Match: * demands; leave the header out to write one")
        if not entry.version:
            raise PreconditionError(f"the value has no version{_UNVERSIONED}")
        return entry.version
    found = _TAG.fullmatch(header)
    if found is None or found[1] or not (found[2].isascii() and found[2].isdigit() and len(found[2]) <= 18):
        raise FieldsError([("if-match", 'give one ETag as a read has told it, such as "1763770000000000"')])
    if not int(found[2]):
        raise PreconditionError(f'"0" is no version{_UNVERSIONED}')
    return int(found[2])


def _matches_version(header: str, version: int, name: str, *, weakly: bool) -> bool:
    if header.strip() == "*":
        return True
    if not _TAGS.fullmatch(header):
        raise FieldsError([(name, "give ETags in quotes, separated by commas, or *")])
    return any(tag == str(version) and (weakly or not weak) for weak, tag in _TAG.findall(header))
