"""How relation types are normalised and directed, and which of their claims contradict each other."""

from __future__ import annotations

import unicodedata
from collections.abc import Iterable
from hashlib import blake2b
from itertools import pairwise

from sharedmem.errors import InvalidError
from sharedmem.models import RelationType

LONGEST_TYPE = 100
_ATTRIBUTE = "@"
_VALUE_BYTES = 8

Places = tuple[tuple[str, str], ...]
"""Lines, each with the end or value in which its claims differ."""

SUMMARY_RELATION = "summary_of"
"""Links the node of a summary to the nodes of its conversation and its users."""
BUILTIN_RELATIONS: tuple[RelationType, ...] = (
    RelationType(name="lives_in", functional=True),
    RelationType(name="born_in", functional=True),
    RelationType(name="located_in"),
    RelationType(name="headquartered_in", functional=True),
    RelationType(name="works_for", inverse="employs"),
    RelationType(name="has_role", functional=True),
    RelationType(name="reports_to", functional=True, inverse="manages"),
    RelationType(name="member_of", inverse="has_member"),
    RelationType(name="has_ceo", functional=True, inverse="ceo_of"),
    RelationType(name="founded", inverse="founded_by"),
    RelationType(name="part_of", inverse="has_part"),
    RelationType(name="owns", inverse="owned_by"),
    RelationType(name="married_to", functional=True, symmetric=True),
    RelationType(name="parent_of", inverse="child_of"),
    RelationType(name="sibling_of", symmetric=True),
    RelationType(name="friend_of", symmetric=True),
    RelationType(name="knows", symmetric=True),
    RelationType(name="ordered", inverse="ordered_by"),
    RelationType(name="returned", inverse="returned_by"),
    RelationType(name=SUMMARY_RELATION, inverse="has_summary"),
    RelationType(name="renamed_to", functional=True, inverse="formerly_named"),
)
"""The vocabulary of every graph; an application's own types come before these."""


class Vocabulary:
    """The relation types of an application, on top of the shipped ones.

    A type that is not declared may have many targets at a time; an attribute (`@tier`) has one value at a time.

    Args:
        types: the application's own. One of them replaces a built-in type of its name or its inverse.

    Raises:
        InvalidError: a type has no name or is declared twice, or two of them contradict each other.
    """

    def __init__(self, types: Iterable[RelationType] = ()) -> None:
        own = _by_name([_spelled(type_) for type_ in types])
        inverses = _inverses(own.values())
        self._types = {type_.name: type_ for type_ in _remaining_builtin({*own, *inverses})} | own
        self._inverses = _inverses(self._types.values())

    def extended(self, types: Iterable[RelationType]) -> Vocabulary:
        """Return the vocabulary with further types, which replace types of the same name or inverse.

        Raises:
            InvalidError: as for the constructor.
        """
        added = [_spelled(type_) for type_ in types]
        replaced = {type_.name for type_ in added} | {type_.inverse for type_ in added}
        kept = [type_ for name, type_ in self._types.items() if name not in replaced and type_.inverse not in replaced]
        return Vocabulary([*kept, *added])

    def names(self) -> tuple[str, ...]:
        """Return every declared type in alphabetical order, under its own name; `declared` returns its inverse."""
        return tuple(sorted(self._types))

    def normal(self, type_: str) -> str:
        """Return a type in normal spelling: `Lives In`, `livesIn` and `LIVES-IN` are `lives_in`.

        Raises:
            InvalidError: the type has no letter or digit, or is too long.
        """
        return _normal(type_)

    def declared(self, type_: str) -> RelationType:
        """Return the behaviour of a type, given by its normal name or the name of its inverse."""
        name = self._inverses.get(type_, type_)
        return self._types.get(name) or RelationType(name=name, functional=name.startswith(_ATTRIBUTE))

    def canonical(self, type_: str, source: str, target: str) -> tuple[str, str, str]:
        """Return a relation as it is stored: from its proper end, and a symmetric one with its ends in order.

        Args:
            type_: in normal spelling.
            source: id of an entity.
            target: id of an entity, or empty; an inverse without a target is returned without a source.
        """
        if type_ in self._inverses:
            type_, source, target = self._inverses[type_], target, source
        known = self._types.get(type_)
        if known is not None and known.symmetric and target and (target < source or not source):
            source, target = target, source
        return type_, source, target

    def lines(self, type_: str, source: str, target: str, value: str = "") -> tuple[str, ...]:
        """Return the lines of a claim; claims of one line may contradict each other, others never do.

        Args:
            type_: canonical, as `source` and `target` are.
            source: id of an entity.
            target: id of an entity; empty for an attribute, and to end any target.
            value: JSON of an attribute's value.

        Returns:
            One line, or two if both ends have one other end at a time. None at all if the claim does not contain
                enough: an end of a relation with many targets needs its target.
        """
        return tuple(line for line, _ in self.places(type_, source, target, value))

    def places(self, type_: str, source: str, target: str, value: str = "") -> Places:
        """Return the lines of a claim, as `lines` does, each with the other end or value in which claims there differ.

        The other end is empty for a claim that ends any target.
        """
        known = self.declared(type_)
        if known.symmetric:
            return _places_of_symmetric(known, source, target)
        from_source = (f"{source}>{type_}", target or value)
        from_target = (f"{target}<{type_}", source)
        wanted: Places = (_place_of_triple(source, type_, target, value),)
        if known.functional or known.inverse_functional:
            wanted = (from_source,) * known.functional + (from_target,) * known.inverse_functional
        return tuple([place for place in wanted if place[0][0] not in "<>" and place[0][-1] != ">"])

    def sentence(self, source_name: str, type_: str, target_name: str) -> str:
        """Return a relation in words, for people and for searches: `Anna lives in Berlin`, `Anna: tier is gold`."""
        words = type_.removeprefix(_ATTRIBUTE).replace("_", " ")
        if type_.startswith(_ATTRIBUTE):
            return f"{source_name}: {words} is {target_name}"
        return f"{source_name} {words} {target_name}".strip()


def _place_of_triple(source: str, type_: str, target: str, value: str) -> tuple[str, str]:
    end = target
    if not target and value:
        end = f"={blake2b(value.encode(), digest_size=_VALUE_BYTES).hexdigest()}"
    return f"{source}>{type_}>{end}", target or value


def _places_of_symmetric(known: RelationType, source: str, target: str) -> Places:
    if not known.functional:
        return (_place_of_triple(source, known.name, target, ""),) if source and target else ()
    both = ((f"{source}>{known.name}", target), (f"{target}>{known.name}", source))
    named = both[: 1 if source == target else 2]
    return tuple(place for place in named if not place[0].startswith(">"))


def _normal(type_: str) -> str:
    if not isinstance(type_, str):
        raise InvalidError("type", type_, "give the name of a relation, such as 'lives_in'")
    stripped = type_.strip()
    mark = _ATTRIBUTE if stripped.startswith(_ATTRIBUTE) else ""
    words = _words(unicodedata.normalize("NFKC", stripped))
    if not words:
        raise InvalidError("type", type_, "use a letter or digit, such as 'lives_in', or '@tier' for an attribute")
    if len(words) > LONGEST_TYPE:
        raise InvalidError("type", type_, f"keep it within {LONGEST_TYPE} characters")
    return mark + words


def _words(text: str) -> str:
    parts = [text[:1]]
    for before, letter in pairwise(text):
        # `livesIn` marks words by capitals only; in LIVES_IN capitals have no meaning.
        if letter.isupper() and (before.islower() or before.isdigit()):
            parts.append("_")
        parts.append(letter)
    apart = "".join(letter if _is_name_character(letter) else "_" for letter in "".join(parts))
    folded = unicodedata.normalize("NFKC", apart.casefold())
    return "_".join(word for word in folded.split("_") if word)


def _is_name_character(letter: str) -> bool:
    # Combining marks belong to the letters before them: Devanagari writes vowels so.
    return letter.isalnum() or unicodedata.category(letter).startswith("M")


def _spelled(type_: RelationType) -> RelationType:
    name = _normal(type_.name)
    inverse = None if type_.inverse is None else _normal(type_.inverse)
    _check(type_, name, inverse)
    both = type_.symmetric and (type_.functional or type_.inverse_functional)
    return RelationType(
        name=name,
        functional=type_.functional or both,
        inverse_functional=type_.inverse_functional or both,
        symmetric=type_.symmetric,
        inverse=inverse,
    )


def _check(type_: RelationType, name: str, inverse: str | None) -> None:
    if name.startswith(_ATTRIBUTE) and (inverse or type_.symmetric or type_.inverse_functional):
        raise InvalidError("relation type", name, "an attribute has no other end: declare no inverse, symmetry or such")
    if inverse is not None and inverse.startswith(_ATTRIBUTE):
        raise InvalidError("relation type", name, "an attribute cannot be the inverse of a relation")
    if inverse == name:
        raise InvalidError("relation type", name, "it is its own inverse; declare it symmetric instead")
    if inverse is not None and type_.symmetric:
        raise InvalidError("relation type", name, f"it is symmetric; leave out the inverse {inverse!r}")


def _by_name(types: Iterable[RelationType]) -> dict[str, RelationType]:
    found: dict[str, RelationType] = {}
    for type_ in types:
        if found.setdefault(type_.name, type_) != type_:
            raise InvalidError("relation type", type_.name, "it is declared twice and differently; keep one")
    return found


def _inverses(types: Iterable[RelationType]) -> dict[str, str]:
    known = {type_.name: type_ for type_ in types}
    found: dict[str, str] = {}
    for name, type_ in known.items():
        if type_.inverse is None:
            continue
        if type_.inverse in known:
            raise InvalidError(
                "relation type", name, f"its inverse {type_.inverse!r} is declared too; declare one only"
            )
        if found.setdefault(type_.inverse, name) != name:
            raise InvalidError("relation type", name, f"{type_.inverse!r} is the inverse of {found[type_.inverse]!r}")
    return found


def _remaining_builtin(taken: set[str]) -> Iterable[RelationType]:
    """Return the built-in types that an application does not replace."""
    for type_ in map(_spelled, BUILTIN_RELATIONS):
        if type_.name in taken:
            continue
        yield type_.model_copy(update={"inverse": None}) if type_.inverse in taken else type_
