"""Quote untrusted text in a prompt: one line each, which neither ends the block around it nor begins another line."""

from __future__ import annotations

import re

import orjson

_SIGNS = str.maketrans({sign: f"\\u{ord(sign):04x}" for sign in "<>\u0085\u2028\u2029"})
_PLAIN_LABEL = re.compile(r"[\w.:@/+ -]{1,64}")


def quote_text(text: str) -> str:
    """Return a text as a JSON string in which `<` and `>` are escaped: it can neither begin a line nor end a block."""
    # Lone surrogates cannot be encoded; line separators beyond ASCII could begin a line.
    return orjson.dumps(text.encode(errors="replace").decode()).decode().translate(_SIGNS)


def quote_label(label: str) -> str:
    """Return a name or id as it is if it is plain and short; else its first 64 characters, quoted as a text."""
    return label if _PLAIN_LABEL.fullmatch(label) else quote_text(label[:64])
