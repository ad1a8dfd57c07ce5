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
    """Any text for use within the double quotes of a Mermaid label.

    What is no letter, digit or plain punctuation is written as a number.
    """
    return "".join(
        letter if letter.isalnum() or letter in _PLAIN_PUNCTUATION else f"#{ord(letter)};" for letter in one_line(text)
    )


def escape_dot(text: str) -> str:
    r"""Any text for use within the double quotes of a DOT label, where `\N` and `&lt;` would mean something."""
    plain = one_line(text).replace("&", "&amp;")
    return plain.replace("\\", "\\\\").replace('"', '\\"')


def escape_script_json(content: object) -> str:
    """JSON that neither ends the element it stands in nor begins another, whatever texts are in it."""
    return to_json(content, inf_nan_mode="null").decode().translate(_NOT_IN_MARKUP)


def csp_hash(text: str) -> str:
    """What a content security policy says to let exactly this script or style through."""
    return f"'sha256-{b64encode(sha256(text.encode()).digest()).decode()}'"


def one_line(text: str) -> str:
    """A text without controls, line breaks and halves of letters, at a length that a diagram can bear."""
    clean = "".join(" " if unicodedata.category(letter) in {"Cc", "Cs", "Zl", "Zp"} else letter for letter in text)
    # Mermaid takes no empty label.
    return (clean if len(clean) <= _LONGEST_LABEL else f"{clean[: _LONGEST_LABEL - 1]}…") or " "
