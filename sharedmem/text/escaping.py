"""Escape untrusted text for Mermaid, DOT and HTML, one function for each kind of place."""

from __future__ import annotations

import unicodedata
from base64 import b64encode
from hashlib import sha256

from pydantic_core import to_json

_LONGEST_LABEL = 120
_PLAIN_PUNCTUATION = frozenset(" .,-_:")
_NOT_IN_MARKUP = str.maketrans({letter: f"\\u{ord(letter):04x}" for letter in "<>&'\u2028\u2029"})


def escape_mermaid(text: str) -> str:
    """Escape a text for the double quotes of a Mermaid label.

    Every character except letters, digits and plain punctuation becomes a numeric code.
    """
    return "".join(
        letter if letter.isalnum() or letter in _PLAIN_PUNCTUATION else f"#{ord(letter)};" for letter in one_line(text)
    )


def escape_dot(text: str) -> str:
    r"""Escape a text for the double quotes of a DOT label, where `\N` and `&lt;` are special."""
    plain = one_line(text).replace("&", "&amp;")
    return plain.replace("\\", "\\\\").replace('"', '\\"')


def escape_script_json(content: object) -> str:
    """Return JSON that can neither close the script element around it nor open another."""
    return to_json(content, inf_nan_mode="null").decode().translate(_NOT_IN_MARKUP)


def csp_hash(text: str) -> str:
    """Return the source expression with which a content security policy allows exactly this script or style."""
    return f"'sha256-{b64encode(sha256(text.encode()).digest()).decode()}'"


def one_line(text: str) -> str:
    """Replace control characters, line breaks and lone surrogates by blanks, and cut to the length of a label."""
    clean = "".join(" " if unicodedata.category(letter) in {"Cc", "Cs", "Zl", "Zp"} else letter for letter in text)
    # Mermaid rejects an empty label.
    return (clean if len(clean) <= _LONGEST_LABEL else f"{clean[: _LONGEST_LABEL - 1]}…") or " "
