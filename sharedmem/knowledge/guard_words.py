"""Words by which two texts say different things, however near their embeddings are; spelled by `singular`."""

from __future__ import annotations

_SHORTEST_PLURAL = 4


def singular(form: str) -> str:
    """The spelling under which a small-letter word is compared: `parents`, `parent's` and `parent` are one."""
    form = form.removesuffix("'s").replace(".", "")
    if len(form) >= _SHORTEST_PLURAL and form[-1] == "s" and form[-2] not in "su'":
        return form[:-1]
    return form


def _words(text: str) -> list[str]:
    return [singular(word) for word in text.split()]


NUMBERS = {
    word: str(number)
    for number, word in enumerate(
        _words(
            "zero one two three four five six seven eight nine ten eleven twelve thirteen fourteen fifteen sixteen "
            "seventeen eighteen nineteen twenty"
        )
    )
} | {
    "first": "1",
    "second": "2",
    "third": "3",
    "fourth": "4",
    "fifth": "5",
    "sixth": "6",
    "seventh": "7",
    "eighth": "8",
    "ninth": "9",
    "tenth": "10",
    "eleventh": "11",
    "twelfth": "12",
    "thirty": "30",
    "forty": "40",
    "fifty": "50",
    "sixty": "60",
    "seventy": "70",
    "eighty": "80",
    "ninety": "90",
    "hundred": "100",
    "thousand": "1000",
    "million": "1000000",
    "billion": "1000000000",
}
ALSO_WORDS = frozenset({"one", "first", "second"})
"""Numbers that are often none: `one` who asks, `first` of all, wait a `second`."""

NEGATIONS = frozenset(
    _words(
        "not no never without none nobody nothing neither nor cannot unable impossible non "
        "cant dont doesnt didnt isnt arent wasnt werent wont wouldnt shouldnt couldnt hasnt havent hadnt aint "
        "nicht kein keine ohne nie jamais sans nunca"
    )
)

_ALIASES = """
    % percent, percentage percent, $ dollar, usd dollar, € euro, eur euro, £ pound, gbp pound, ₹ rupee, inr rupee,
    rs rupee, ¥ yen, jpy yen, kilogram kg, kilogramme kg, kilo kg, gram g, gramme g, milligram mg, kilometer km,
    kilometre km, meter m, metre m, centimeter cm, centimetre cm, millimeter mm, millimetre mm, feet foot, ft foot,
    inche inch, liter l, litre l, milliliter ml, millilitre ml, millisecond ms, sec second, min minute, hr hour,
    yr year, kilobyte kb, megabyte mb, gigabyte gb, terabyte tb, usa us, jan january, feb february, apr april,
    aug august, sept september, sep september, oct october, nov november, dec december
"""
ALIASES = dict(pair.split() for pair in _ALIASES.split(","))
"""Spellings of the same unit, month or country; in the singular."""

_MEASURES = (
    "percent dollar euro pound rupee yen",
    "mg g kg ton",
    "mm cm m km inch foot yard mile",
    "ml l gallon",
    "ms second minute hour day week month year decade century",
    "daily weekly monthly yearly",
    "kb mb gb tb",
    "celsius fahrenheit kelvin",
    "am pm",
)
_DATES = (
    "january february march april may june july august september october november december",
    "monday tuesday wednesday thursday friday saturday sunday",
    "today yesterday tomorrow",
)
_OPPOSITES = (
    "more less fewer",
    "most least",
    "higher lower",
    "high low",
    "highest lowest",
    "maximum minimum",
    "maximize minimize",
    "maximise minimise",
    "max min",
    "increase decrease reduce",
    "increasing decreasing reducing",
    "increased decreased reduced",
    "increase lower",
    "gain lose loss",
    "add remove delete",
    "before after",
    "early late",
    "earlier later",
    "above below",
    "over under",
    "inside outside",
    "up down",
    "left right",
    "front back",
    "top bottom",
    "upper lower",
    "north south east west",
    "northern southern eastern western",
    "best worst",
    "better worse",
    "good bad",
    "strongest weakest",
    "strong weak",
    "strength weakness",
    "advantage disadvantage",
    "benefit drawback",
    "pro con",
    "cheap expensive",
    "cheapest expensive",
    "fast slow",
    "faster slower",
    "hot cold",
    "old new",
    "oldest newest",
    "older younger",
    "old young",
    "big small",
    "bigger smaller",
    "biggest smallest",
    "large small",
    "larger smaller",
    "largest smallest",
    "long short",
    "longer shorter",
    "longest shortest",
    "tall short",
    "deep shallow",
    "thick thin",
    "heavy light",
    "full empty",
    "open close closed",
    "start stop end",
    "begin end finish",
    "enable disable",
    "enabled disabled",
    "activate deactivate",
    "allow forbid prevent",
    "allowed forbidden",
    "accept reject",
    "accepted rejected",
    "approve reject",
    "approved rejected",
    "grant revoke",
    "install uninstall",
    "lock unlock",
    "block unblock",
    "connect disconnect",
    "encrypt decrypt",
    "import export",
    "upload download",
    "login logout",
    "buy sell",
    "bought sold",
    "buying selling",
    "lend borrow",
    "win lose",
    "won lost",
    "love hate",
    "like dislike",
    "agree disagree",
    "true false",
    "valid invalid",
    "legal illegal",
    "possible impossible",
    "safe dangerous",
    "public private",
    "internal external",
    "male female",
    "man woman",
    "men women",
    "boy girl",
    "boyfriend girlfriend",
    "husband wife",
    "father mother",
    "dad mom",
    "brother sister",
    "son daughter",
    "he she",
    "his her",
    "past future present",
    "pass fail",
    "success failure",
    "succeed fail",
    "on off",
    "online offline",
    "hire fire",
    "introvert extrovert",
    "rural urban",
    "odd even",
    "positive negative",
    "profit loss",
    "input output",
    "first last",
    "all some",
    "always sometimes rarely",
    "< > = <= >= == != ≤ ≥ ≠",
)


def _by_word(groups: tuple[str, ...]) -> dict[str, frozenset[str]]:
    """For each word, those that say something else in its place."""
    others: dict[str, frozenset[str]] = {}
    for group in groups:
        words = frozenset(_words(group))
        for word in words:
            others[word] = others.get(word, frozenset()) | (words - {word})
    return others


UNITS = _by_word(_MEASURES + _DATES)
MEASURES = frozenset(_by_word(_MEASURES))
OPPOSITES = _by_word(_OPPOSITES)

COMMON_OPENERS = frozenset(
    _words(
        "a about above according after again all almost also although always am among an and another any anyone "
        "anything are as at based be because been before being below besides best better between both but by can "
        "compare could currently dear define describe did difference differentiate discuss do does doing done due "
        "during each either else ever every everyone everything evaluate examples except explain few find first "
        "finally following for from generally generate get give given has hasn't have haven't having he hello "
        "help her here hers hey hi his how however i if imagine in instead into is isn't it its itself just last "
        "lately later let list long look made make many may maybe me mine more most much must my name near need "
        "next no nobody none not nothing now of off often on once one only or other others our out over own "
        "people per perhaps please provide rather really recently say seriously several shall she should show "
        "since so some somebody someone something sometimes soon still such suggest summarise summarize suppose "
        "tell than that the their theirs them then there these they thing things think this those though through "
        "thus to today together tomorrow tonight too translate true under unlike until up upon us use used using "
        "usually very was wasn't way ways we were weren't what whatever when whenever where whether which while "
        "who whom whose why will with without won't would wouldn't write yes yesterday yet you your yours user "
        "customer agent i'm i've i'll i'd"
    )
)
"""These are no names, whether they are capitalised or not."""
