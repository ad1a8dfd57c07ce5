"""What the search index of a user's model holds: made of the schema that redis-om has for the model.

Texts are indexed whole and with their case, whatever separator redis-om would split them at.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterable
from dataclasses import dataclass
from functools import cached_property, partial

from sharedmem.errors import InvalidError, UnsupportedError
from sharedmem.om.compiler import IndexedField, IndexedFields, IndexedNumber, IndexedTag, IndexedWords
from sharedmem.om.expressions import Scalar
from sharedmem.record_family import RecordFamily
from sharedmem.redis.replies import Argument
from sharedmem.redis.scripts.objects import ObjectForm
from sharedmem.search.protocol import SEPARATOR, encode_tag

_PART = re.compile(r"(?:(?P<path>\S+) AS )?(?P<name>\w+) (?P<type>TAG|TEXT|NUMERIC|GEO|VECTOR)\b(?P<options>.*)")
_STARTS = re.compile(r"(?<!\bAS) (?=(?:\$\S* AS )?\w+(?: AS \w+)? (?:TAG|TEXT|NUMERIC|GEO|VECTOR)\b)")
_WORD = re.compile(r"[^\W_]+")
_USUAL_SEPARATOR = "|"


@dataclass(frozen=True)
class SchemaField:
    """One field of the index."""

    path: str
    """Where its values are: the name of a field of the hash, or a JSON path."""
    name: str
    kind: str
    options: tuple[str, ...]
    """Of a number whether it is sortable; of a vector its algorithm and parameters."""


@dataclass(frozen=True)
class ObjectSchema:
    """The index of a model.

    Args:
        model: its name.
        form: how its objects are stored.
        listed: its fields as redis-om writes them, such as `$.status AS status TAG SEPARATOR |`.
        booleans: names of the fields that hold truth values.
    """

    model: str
    form: ObjectForm
    listed: tuple[str, ...]
    booleans: frozenset[str]

    @cached_property
    def parts(self) -> tuple[SchemaField, ...]:
        """The fields of the index.

        Raises:
            InvalidError: redis-om splits a field of the model into several values at a separator of its own.
        """
        return tuple(_parse(part) for text in self.listed if text for part in _STARTS.split(text))

    @cached_property
    def digest(self) -> str:
        """A short name of this schema: another one has another index."""
        text = f"{self.form} {self.creation('', '')}"
        return hashlib.blake2b(text.encode(), digest_size=4).hexdigest()

    @cached_property
    def family(self) -> RecordFamily:
        """The fields as conditions name them."""
        return RecordFamily(
            f"model {self.model}",
            tuple(part.name for part in self.parts if part.kind == "TAG"),
            tuple(part.name for part in self.parts if part.kind == "NUMERIC"),
        )

    @cached_property
    def numbers(self) -> dict[str, str]:
        """By field, the number by which the index sorts."""
        return {part.name: part.name for part in self.parts if part.kind == "NUMERIC" and "SORTABLE" in part.options}

    def vector(self, name: str = "") -> SchemaField:
        """Return the field with vectors; without a name the only one.

        Raises:
            UnsupportedError: the model has none, or several and none is named.
        """
        found = [part for part in self.parts if part.kind == "VECTOR" and name in {"", part.name}]
        if len(found) != 1:
            remedy = "give one field `vector_options`, or name the field by `knn=KNNExpression(...)`"
            raise UnsupportedError(f"a query for the nearest {self.model}", remedy)
        return found[0]

    def creation(self, name: str, prefix: str) -> tuple[Argument, ...]:
        """Return the command that makes the index.

        Args:
            name: of the index.
            prefix: of the keys of its objects.
        """
        fields = [word for part in self.parts for word in self._definition(part)]
        return ("FT.CREATE", name, "ON", self.form.upper(), "PREFIX", 1, prefix, "STOPWORDS", 0, "SCHEMA", *fields)

    def indexed(self, names: Iterable[tuple[str, ...]]) -> IndexedFields:
        """Return what the index has of some fields, each given by the names that lead to it."""
        kinds = {part.name: part.kind for part in self.parts}
        found: dict[tuple[str, ...], IndexedField] = {}
        for path in names:
            name = "_".join(path)
            tag = IndexedTag(name, partial(_tag_values, self.form, name in self.booleans))
            if f"{name}_fts" in kinds:
                found[path] = IndexedWords(_query_words, f"{name}_fts", tag)
            elif kinds.get(name) == "TAG":
                found[path] = tag
            elif kinds.get(name) == "NUMERIC":
                found[path] = IndexedNumber(name)
        return found

    def _definition(self, part: SchemaField) -> list[Argument]:
        head: list[Argument] = [part.path, *(("AS", part.name) if part.path != part.name else ()), part.kind]
        if part.kind == "TAG":
            return [*head, *(("SEPARATOR", SEPARATOR) if self.form == "hash" else ()), "CASESENSITIVE"]
        return [*head, *part.options]


def _parse(text: str) -> SchemaField:
    found = _PART.fullmatch(text.strip())
    if found is None:
        raise InvalidError("model", text, "its index cannot be made; use fields of text, numbers, times and vectors")
    words = found["options"].split()
    if "SEPARATOR" in words and words[words.index("SEPARATOR") + 1 :][:1] not in ([_USUAL_SEPARATOR], []):
        advice = "a text is one value here; use a JsonModel with a list of texts for several"
        raise InvalidError(f"separator of {found['name']}", words[words.index("SEPARATOR") + 1], advice)
    if found["type"] == "GEO":
        raise InvalidError("field", found["name"], "coordinates cannot be indexed here; leave out index=True")
    options = tuple(words) if found["type"] == "VECTOR" else tuple(word for word in words if word == "SORTABLE")
    path = found["path"] or found["name"]
    return SchemaField(path, found["name"], found["type"], options)


def _tag_values(form: ObjectForm, is_boolean: bool, value: Scalar) -> tuple[str, ...] | None:
    """Return how the index has a value; None for one that it has with changes, which this process tests."""
    if is_boolean and isinstance(value, bool):
        return (str(int(value)) if form == "hash" else str(value).lower(),)
    if isinstance(value, str) and not is_boolean and encode_tag(value) == value:
        return (value,)
    return None


def _query_words(text: str) -> tuple[str, ...]:
    return tuple(dict.fromkeys(word.lower() for word in _WORD.findall(text)))
