"""Find the spans of entity names in a text: by pattern, gazetteer, quotes, the speaker and capital letters."""

from __future__ import annotations

import re
import warnings
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Literal, NamedTuple

from sharedmem.errors import InvalidError


class LanguageWords(NamedTuple):
    """The words of a language that matter for finding names; all in lower case."""

    plain: frozenset[str]
    """Words that are not names, in any spelling."""
    me: frozenset[str]
    you: frozenset[str]
    owning: frozenset[str]
    """The words of these two that a possession follows: `my`."""
    shortened: frozenset[str]
    """Endings after an apostrophe: `'ve`."""
    has_capital_nouns: bool = False
    """Whether all nouns have a capital, so that a capital is no sign of a name."""


_ENGLISH = """
    a about above accordingly actually after afterwards again all almost already also although always am among an and
    another any anybody anyone anything anyway apart apparently are around as at away back be because been before behind
    being below beside besides best better between both but by bye can cannot cheers clearly congratulations correct
    correction could currently dear definitely despite did do does doing done down due during each earlier either else
    enough even eventually ever every everybody everyone everything exactly except excuse fact finally fine first
    following for former formerly fortunately from further furthermore generally get give given go going good got great
    had has have having he hello hence her here hers herself hey hi him himself his hopefully how however i if in
    incidentally indeed instead into is it its itself just kind last late lately later least less let like look many may
    maybe me meanwhile might mine more moreover morning most mostly much must my myself namely near nearly neither never
    nevertheless new next no nobody none nor not nothing now of off often oh ok okay on once one only onto or order
    orders other others otherwise our ours out over own per perhaps please previously probably quite rather re really
    recently regarding regards right same say second see seeing seems several shall she should simply since so some
    somebody somehow someone something sometimes soon sorry still such sure surely ok than thank thanks that the their
    theirs them themselves then there therefore these they thing things third this those though through throughout thus
    to today together tomorrow tonight too toward towards two under unfortunately unless until up update upon us usually
    very via was we well welcome were what whatever when whenever where whereas wherever whether which while who whoever
    whom whose why will with within without would yeah yep yes yesterday yet you your yours yourself
    ceo cto cfo coo cio vp svp evp hr it faq asap fyi ps btw eta id url api pdf vat iban usd eur gbp chf jpy
    mr mrs ms miss dr prof sir madam
    invoice ticket customer email mail phone address user agent note subject
    monday tuesday wednesday thursday friday saturday sunday january february march april june july august september
    october november december
    """
_GERMAN = """
    aber alle alles als also am an andere auch auf aus bald bei beim bin bis bitte da dabei dafür damit danach dann
    das dass dein deine dem den denn der des deshalb die dies diese dieser dieses doch dort du durch ein eine einem
    einen einer eines entschuldigung er erst es etwas euch euer falls für ganz gar gegen gestern guten hallo hat
    hatte heute hier hinter ich ihm ihn ihnen ihr ihre im immer in ins ist ja jede jeder jedes jetzt kann kein keine
    können könnte leider man mein meine mich mir mit morgen nach nein nicht noch nun nur ob oder ohne schon sehr
    seit sein seine seit sich sie sind so sondern tag trotzdem über um und uns unser unsere unter viel vielleicht
    vielen vom von vor wann war waren warum was weil weiter welche wenn wer werden wie wieder wir wird wo würde zu
    zum zur zwar zwischen dank grüße montag dienstag mittwoch donnerstag freitag samstag sonntag januar februar märz
    april mai juni juli august september oktober november dezember
    """
_FRENCH = """
    à afin ainsi alors après assez au aucun aujourd'hui aussi autre aux avant avec avoir beaucoup bien bonjour
    bonsoir car ce cela celle celui ces cet cette chaque chez comme comment dans de depuis des donc du elle elles en
    encore enfin ensuite entre est et être eux hier il ils j'ai je jusque la le les leur leurs lui ma mais
    malheureusement me merci mes moi mon ne ni non nos notre nous on ont ou où oui par parce pardon pas pendant
    personne peut-être peu plus pour pourquoi puis quand que quel quelle qui quoi sa sans sauf se ses si son sont
    sous sur ta tandis te tes toi ton toujours tous tout toute toutes très trop tu un une vers voici voilà vos votre
    vous lundi mardi mercredi jeudi vendredi samedi dimanche janvier février mars avril mai juin juillet août
    septembre octobre novembre décembre
    """


def _word_set(text: str) -> frozenset[str]:
    return frozenset(text.split())


PARTICLES = _word_set("de van von der den del della di da dos du la le bin al of")
"""Words inside of names."""
FILLERS = _word_set(
    "a an the just now recently already also finally currently actually really very still then today so well please "
    "presently lately newly officially permanently temporarily eventually soon again too"
)
"""English words that do not change the meaning of a sentence."""

_LANGUAGE_WORDS = {
    "en": LanguageWords(
        _word_set(_ENGLISH),
        _word_set("i me my mine myself"),
        _word_set("you your yours yourself"),
        _word_set("my your"),
        _word_set("m ve ll d re"),
    ),
    "de": LanguageWords(
        _word_set(_GERMAN),
        _word_set("ich mich mir mein meine meinem meinen meiner meines"),
        _word_set("sie ihnen ihr ihre ihrem ihren ihrer du dich dir dein deine deinem deinen deiner"),
        _word_set("mein meine meinem meinen meiner meines ihr ihre ihrem ihren ihrer dein deine deinem deinen deiner"),
        frozenset(),
        has_capital_nouns=True,
    ),
    "fr": LanguageWords(
        _word_set(_FRENCH),
        _word_set("je moi mon ma mes"),
        _word_set("vous votre vos tu toi ton ta tes"),
        _word_set("mon ma mes votre vos ton ta tes"),
        frozenset(),
    ),
}


def language_words(languages: Sequence[str]) -> LanguageWords:
    """Return the relevant words for texts in any of these languages: `en`, `de`, `fr`."""
    tongues = [_LANGUAGE_WORDS[language] for language in languages]
    plain, me, you, owning, shortened = (
        frozenset[str]().union(*sets) for sets in zip(*(tongue[:5] for tongue in tongues), strict=True)
    )
    return LanguageWords(plain, me, you, owning, shortened, any(tongue.has_capital_nouns for tongue in tongues))


LONGEST_PATTERN = 300
_REPEATING = frozenset("*+?")
_COUNT = re.compile(r"\{\d*(?:,\d*)?\}")
_PLACE = re.compile(r"\{(\w+)\}")
_SYMBOLS = {"\u20ac": "EUR", "$": "USD", "\u00a3": "GBP", "\u00a5": "JPY"}
_CODES = "EUR|USD|GBP|JPY|CHF|CAD|AUD|SEK|NOK|DKK|PLN|CZK|INR|CNY"
_NUMBER = r"\d{1,3}(?:[,.' ]\d{3})+(?:[.,]\d{1,2})?(?!\d)|\d+(?:[.,]\d{1,2})?(?!\d)"


@dataclass(frozen=True, slots=True)
class NamePattern:
    """The pattern of names of one type."""

    type: str
    pattern: re.Pattern[str]
    name_of: Callable[[re.Match[str]], str]


def parse_name_pattern(type_: str, pattern: str, name: str | None = None) -> NamePattern:
    """Return a name pattern of a rules file.

    Args:
        type_: type of the entities.
        pattern: a regular expression; upper and lower case are the same. Its repetitions are possessive.
        name: the name, with groups of the pattern in braces; by default the whole match.

    Raises:
        InvalidError: the pattern is invalid, matches the empty text, or lacks a group of the name.
    """
    if len(pattern) > LONGEST_PATTERN:
        raise InvalidError("pattern", pattern, f"keep it within {LONGEST_PATTERN} characters")
    try:
        with warnings.catch_warnings(action="error"):  # a pattern that Python may read differently one day is rejected
            compiled = re.compile(make_possessive(pattern), re.IGNORECASE)
    except (re.error, RecursionError, OverflowError, Warning) as error:
        raise InvalidError("pattern", pattern, f"it is not a regular expression: {error}") from error
    if compiled.search(""):
        raise InvalidError("pattern", pattern, "it matches the empty text; require a letter or digit")
    for group in _PLACE.findall(name or ""):
        if group not in compiled.groupindex:
            raise InvalidError("name", name, f"its pattern has no group (?P<{group}>...)")
    if name is None:
        return NamePattern(type_, compiled, _matched_text)
    return NamePattern(type_, compiled, lambda match: _PLACE.sub(lambda place: match[place[1]] or "", name))


def make_possessive(pattern: str) -> str:
    """Return the regular expression with possessive repetitions, so that no text makes it run for long.

    Raises:
        InvalidError: it has a lazy repetition, or refers back to a group.
    """
    parts = list(_split_pattern(pattern))
    made = []
    for (part, is_repetition), (after, _) in pairwise([*parts, ("", False)]):
        made.append(part)
        if is_repetition and after == "?":
            raise InvalidError(
                "pattern", pattern, "a lazy repetition such as *? is not supported; exclude characters instead"
            )
        if is_repetition and after != "+":
            made.append("+")
    return "".join(made)


def _split_pattern(pattern: str) -> list[tuple[str, bool]]:
    """Return its characters, classes and escapes; each with whether it is a repetition."""
    parts: list[tuple[str, bool]] = []
    at = 0
    while at < len(pattern):
        end = _end_of_part(pattern, at)
        part = pattern[at:end]
        if part[0] == "\\" and (part[1:].isdigit() and part[1:] != "0"):
            raise InvalidError("pattern", pattern, "it refers back to a group; that is not supported")
        if part.startswith(("(?P=", "(?(")):
            raise InvalidError("pattern", pattern, "it refers back to a group; that is not supported")
        after_repetition = bool(parts) and parts[-1][1]
        repeats = (part in _REPEATING or _COUNT.fullmatch(part) is not None) and not after_repetition
        parts.append((part, repeats))
        at = end
    return parts


def _end_of_part(pattern: str, at: int) -> int:
    if pattern[at] == "\\":
        return at + 2
    if pattern[at] == "[":
        return _end_of_class(pattern, at)
    if pattern.startswith("(?", at):
        # `?` belongs to the bracket, and so do the characters that define the kind of group.
        return at + (4 if pattern.startswith(("(?P=", "(?<=", "(?<!"), at) else 3)
    counted = _COUNT.match(pattern, at)
    return counted.end() if counted else at + 1


def _end_of_class(pattern: str, at: int) -> int:
    end = at + 1
    if pattern.startswith("^", end):
        end += 1
    if pattern.startswith("]", end):
        end += 1
    while end < len(pattern) and pattern[end] != "]":
        end += 2 if pattern[end] == "\\" else 1
    return end + 1


def _matched_text(match: re.Match[str]) -> str:
    return match[0]


def _amount(match: re.Match[str]) -> str:
    """Return an amount as in `49.90 EUR`."""
    unit = match["before"] or match["after"]
    return f"{_decimal(match['number'])} {_SYMBOLS.get(unit, unit.upper())}"


def _decimal(number: str) -> str:
    digits = number.replace("'", "").replace(" ", "")
    separator = max(digits.rfind("."), digits.rfind(","))
    if separator < 0 or len(digits) - separator > 3:
        return digits.replace(",", "").replace(".", "")
    return f"{digits[:separator].replace(',', '').replace('.', '')}.{digits[separator + 1 :]}"


def _builtin(type_: str, pattern: str, name_of: Callable[[re.Match[str]], str] = _matched_text) -> NamePattern:
    return NamePattern(type_, re.compile(pattern, re.IGNORECASE), name_of)


def _order(match: re.Match[str]) -> str:
    return f"order {(match['id'] or match['bare']).upper()}"


BUILTIN_PATTERNS: tuple[NamePattern, ...] = (
    _builtin(
        "email", r"(?<![\w.+-])[\w+-]{1,64}(?:\.[\w+-]{1,64}){0,8}@(?:[a-z0-9-]{1,63}\.){1,8}[a-z]{2,24}(?![\w-])"
    ),
    _builtin("url", r"\bhttps?://[^\s<>\"')]{1,500}(?<![.,;:!?])"),
    NamePattern(
        "amount",
        re.compile(
            rf"(?<![\w.,])(?:(?P<before>[\u20ac$\u00a3\u00a5]|\b(?:{_CODES}))\s?)?(?P<number>{_NUMBER})"
            rf"(?(before)|\s?(?P<after>[\u20ac$\u00a3\u00a5]|(?:{_CODES})\b))",
            re.IGNORECASE,
        ),
        _amount,
    ),
    _builtin("invoice", r"\bINV(?:OICE)?[-/]?\d{2,12}(?:[-/]\d{1,12}){0,3}(?![\w-])"),
    _builtin(
        "order",
        r"\border(?:s|\s(?:no\.?|number|nr\.?|id))?\s?(?:#\s?(?P<id>[a-z]{0,4}-?\d[\w-]{0,20})|(?P<bare>[a-z]{0,4}-?\d{3,20}))\b"
        r"(?!\s(?:items?|units?|pieces?|eur|usd|more))",
        _order,
    ),
    NamePattern("order", re.compile(r"(?<!\w)#(?P<id>\d{3,20})\b(?P<bare>)"), _order),
    _builtin("ticket", r"\bticket\s?(?:no\.?\s?|number\s)?#?(?P<id>\d{1,12})\b", lambda match: f"ticket {match['id']}"),
    NamePattern("id", re.compile(r"\b[A-Z]{2,10}-\d{1,12}(?:-\d{1,12}){0,3}(?![\w-])"), _matched_text),
)
"""Kinds of evidence for a name without a statement, strongest first."""


Certainty = Literal["sure", "title", "capitals", "beginning"]
"""`capitals`: a rule may give its type; `beginning`: it may be a common word at the beginning of a sentence,
or a noun in a language in which all have capitals."""

AMOUNT, PERSON, TITLE = "amount", "person", "title"
_WORD = re.compile(r"[^\W_]+(?:['-][^\W_]+)*")
_QUOTED = re.compile(r"\"([^\"\n]{2,80})\"|\u201c([^\u201d\n]{2,80})\u201d|\u00ab\s?([^\u00bb\n]{2,80}?)\s?\u00bb")
_MOST_WORDS = 5
_LONGEST_NAME = 200
_PIECE = 1_000


@dataclass(frozen=True, slots=True)
class EntitySpan:
    """A name in a text, with its position."""

    begin: int
    end: int
    name: str
    type: str = ""
    aliases: tuple[str, ...] = ()
    certainty: Certainty = "sure"
    is_speaker: bool = False
    possessive: bool = False
    """Whether it is a "my": what follows belongs to the speaker."""


class GazetteerEntry(NamedTuple):
    """A name of the vocabulary."""

    name: str
    type: str
    aliases: tuple[str, ...]


class Speaker(NamedTuple):
    """The user who speaks, or who is addressed."""

    name: str
    is_listening: bool
    """Whether the text addresses them, so that "you" means them."""


@dataclass(slots=True)
class FoundSpans:
    """The names found in a text, and which of its characters are still free."""

    text: str
    spots: list[EntitySpan] = field(default_factory=list)
    free: bytearray = field(default_factory=bytearray)

    def __post_init__(self) -> None:
        self.free = bytearray(b"\x01") * len(self.text)

    def take(self, spot: EntitySpan) -> None:
        """Add a name, unless it overlaps another one."""
        if self.is_free(spot.begin, spot.end):
            self.spots.append(spot)
            self.block(spot.begin, spot.end)

    def is_free(self, begin: int, end: int) -> bool:
        """Return whether no name was found there."""
        return self.free.find(0, begin, end) < 0

    def block(self, begin: int, end: int) -> None:
        """Exclude a part of the text from further search."""
        self.free[begin:end] = bytes(end - begin)


class Gazetteer:
    """The names that can be found without a rule.

    Args:
        forms: patterns of names, in order.
        known: the vocabulary.
        words: words of rules; one of them alone is never a name.
        tongue: words of the language of the texts.
    """

    def __init__(
        self,
        forms: Sequence[NamePattern],
        known: Iterable[GazetteerEntry],
        *,
        words: Iterable[str],
        tongue: LanguageWords,
    ) -> None:
        self._tongue = tongue
        self._forms = forms
        self._words = frozenset(words)
        self._by_first: dict[str, list[tuple[str, GazetteerEntry]]] = {}
        self._whole: dict[str, GazetteerEntry] = {}
        for entry in known:
            for spelling in (entry.name, *entry.aliases):
                self._learn(_fold_case(spelling).strip(), entry)
        for candidates in self._by_first.values():
            candidates.sort(key=lambda candidate: -len(candidate[0]))

    def _learn(self, spelling: str, entry: GazetteerEntry) -> None:
        first = _WORD.search(spelling)
        if first is not None:
            self._whole.setdefault(spelling, entry)
            self._by_first.setdefault(first[0], []).append((spelling[first.start() :], entry))

    def known(self, name: str) -> GazetteerEntry | None:
        """Return the entry of the vocabulary that has exactly this name."""
        return self._whole.get(_fold_case(name).strip())

    def sure(self, text: str) -> FoundSpans:
        """Return the names that are found by pattern, vocabulary or quotation marks."""
        found = FoundSpans(text)
        for spot in self._formed(text):
            found.take(spot)
        for spot in self._listed(text):
            found.take(spot)
        for match in _QUOTED.finditer(text):
            title = match[match.lastindex or 1].strip()
            if any(letter.isalpha() for letter in title):
                found.take(EntitySpan(*match.span(), title.rstrip(".,;"), TITLE, certainty="title"))
        return found

    def _formed(self, text: str) -> Iterator[EntitySpan]:
        for form in self._forms:
            for begin in range(0, len(text), _PIECE):
                for match in form.pattern.finditer(text, begin, begin + _PIECE):
                    name = form.name_of(match)[:_LONGEST_NAME]
                    aliases = tuple({match[0].strip()} - {name}) if form.type != AMOUNT and match[0].strip() else ()
                    if name.strip():
                        yield EntitySpan(*match.span(), name, form.type, aliases)

    def _listed(self, text: str) -> Iterator[EntitySpan]:
        if not self._by_first:
            return
        level = _fold_case(text)
        for word in _WORD.finditer(level):
            # "Acme's" begins with "Acme".
            for first in {word[0], word[0].partition("'")[0]}:
                spot = self._longest(level, word.start(), first)
                if spot is not None:
                    yield spot
                    break

    def _longest(self, level: str, begin: int, first: str) -> EntitySpan | None:
        for spelling, entry in self._by_first.get(first, ()):
            end = begin + len(spelling)
            if level.startswith(spelling, begin) and not level[end : end + 1].isalnum():
                return EntitySpan(begin, end, entry.name, entry.type, entry.aliases)
        return None

    def likely(self, found: FoundSpans, begins: set[int], speaker: Speaker) -> None:
        """Add the speaker and capitalised names that do not overlap names already found.

        Args:
            found: the names so far, with the dates blocked.
            begins: positions where sentences begin.
            speaker: the user who speaks, or who is addressed.
        """
        words = [match for match in _WORD.finditer(found.text) if found.is_free(*match.span())]
        for word in words:
            spot = self._speaking(word, speaker)
            if spot is not None:
                found.take(spot)
        run: list[re.Match[str]] = []
        for word in words:
            if run and not self._goes_on(found, run, word):
                self._take_run(found, run, begins)
                run = []
            if run or self._is_like_a_name(word):
                run.append(word)
        self._take_run(found, run, begins)

    def _speaking(self, word: re.Match[str], speaker: Speaker) -> EntitySpan | None:
        spelled, apostrophe, rest = word[0].lower().partition("'")
        meant = self._tongue.you if speaker.is_listening else self._tongue.me
        if spelled not in meant or (apostrophe and rest not in self._tongue.shortened):
            return None
        # "i.e." and "i)" do not mean a person.
        if word[0] == "i" and not word.string[word.end() : word.end() + 1].isspace():
            return None
        end = word.start() + len(spelled)
        entry = self.known(speaker.name) or GazetteerEntry(speaker.name, PERSON, ())
        return EntitySpan(
            *(word.start(), end, entry.name, entry.type or PERSON, entry.aliases),
            is_speaker=True,
            possessive=spelled in self._tongue.owning,
        )

    def _is_like_a_name(self, word: re.Match[str]) -> bool:
        spelled = word[0]
        plain = self._tongue.plain
        return spelled[0].isupper() and spelled.lower() not in plain and spelled.partition("'")[0].lower() not in plain

    def _goes_on(self, found: FoundSpans, run: list[re.Match[str]], word: re.Match[str]) -> bool:
        """Return whether a word belongs to the name that began before it."""
        between = found.text[run[-1].end() : word.start()]
        if between not in {" ", ". ", " & "} or len(run) >= _MOST_WORDS or run[-1][0].endswith("'s"):
            return False
        if between == ". " and len(run[-1][0]) > 1:
            return False
        return self._is_like_a_name(word) or word[0] in PARTICLES or word[0].isdigit()

    def _take_run(self, found: FoundSpans, run: list[re.Match[str]], begins: set[int]) -> None:
        while run and not (run[-1][0][0].isupper() or run[-1][0].isdigit()):
            run.pop()
        if run and run[0].start() in begins and len(run) > 1 and run[0][0].lower() in self._words:
            run.pop(0)
        if not run or not found.is_free(run[0].start(), run[-1].end()):
            return
        begin, end = run[0].start(), _without_possessive(run[-1])
        lone = len(run) == 1
        if lone and run[0][0].lower() in self._words:
            return
        starts = lone and (begin in begins or self._tongue.has_capital_nouns)
        if lone and end - begin < 2:
            return
        found.take(
            EntitySpan(
                begin, end, found.text[begin:end][:_LONGEST_NAME], certainty="beginning" if starts else "capitals"
            )
        )


def _without_possessive(word: re.Match[str]) -> int:
    return word.end() - 2 if word[0].endswith("'s") else word.end()


def _fold_case(text: str) -> str:
    """Return the text in lower case with the same length."""
    lower = text.lower()
    return lower if len(lower) == len(text) else "".join(c.lower() if len(c.lower()) == 1 else c for c in text)
