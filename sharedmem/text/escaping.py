"""Escape untrusted text for Mermaid, DOT, HTML and prompts, one function for each kind of place.

In a prompt each text is one line, which neither ends the block around it nor begins another line.
"""

from __future__ import annotations

import re
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


# -- prompts -------------------------------------------------------------------------------------


_SIGNS = str.maketrans({sign: f"\\u{ord(sign):04x}" for sign in "<>\u0085\u2028\u2029"})
_PLAIN_LABEL = re.compile(r"[\w.:@/+ -]{1,64}")


def quote_text(text: str) -> str:
    """Return a text as a JSON string in which `<` and `>` are escaped: it can neither begin a line nor end a block."""
    # Lone surrogates cannot be encoded; line separators beyond ASCII could begin a line.
    return to_json(text.encode(errors="replace").decode()).decode().translate(_SIGNS)


def quote_label(label: str) -> str:
    """Return a name or id as it is if it is plain and short; else its first 64 characters, quoted as a text."""
    return label if _PLAIN_LABEL.fullmatch(label) else quote_text(label[:64])
