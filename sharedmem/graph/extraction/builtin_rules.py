"""The built-in rules for English."""

from __future__ import annotations

from collections.abc import Iterator

from sharedmem.graph.extraction.rules import Rule, compile_rule

_CALLED = (
    "is called|was renamed|was renamed to|is renamed to|has been renamed to|changed its name to|changed their name to"
    "|renamed itself to|renamed itself|is known as|goes by name"
)
_MOVING = "will move|will relocate|am moving|is moving|are moving|am going to move|is going to move"
_BOUGHT = "[have|has|had] (ordered|bought|purchased)"

_STATEMENTS: tuple[tuple[str, str], ...] = (
    # Where people live
    ("{person} (moved|relocated|moved back|moved house) to {city:city|country}", "lives_in(person, city)"),
    ("{person} (have|has|had) (moved|relocated|moved back) to {city:city|country}", "lives_in(person, city)"),
    ("{person} (moved|relocated) from {old:city|country} to {city:city|country}", "lives_in(person, city)"),
    ("{person} (live|lives|lived|reside|resides|resided) in {city:city|country}", "lives_in(person, city)"),
    ("{person} (am|is|are|have been|has been) living in {city:city|country}", "lives_in(person, city)"),
    (
        "{person} (no longer live|no longer lives|not live|not lives) in {city:city|country}",
        "ends lives_in(person, city)",
    ),
    ("{person} (do|does) not live in {city:city|country} [anymore]", "ends lives_in(person, city)"),
    ("{person} moved away from {city:city|country}", "ends lives_in(person, city)"),
    ("{person}'s (home|new home) is in {city:city|country}", "lives_in(person, city)"),
    ("{person} (was|were) born in {city:city|country}", "born_in(person, city)"),
    # Work
    ("{person} (work|works|worked) (for|at) {company}", "works_for(person, company)"),
    ("{person} (am|is|are|have been|has been) working (for|at) {company}", "works_for(person, company)"),
    (
        "{person} (joined|have joined|has joined|started at|started working at|started working for) {company}",
        "works_for(person, company)",
    ),
    ("{person} (am|is|was|are) (employed by|employed at|hired by) {company}", "works_for(person, company)"),
    ("{company} (hired|has hired) {person}", "works_for(person, company)"),
    ("{person} (left|have left|has left|quit|resigned from|retired from) {company}", "ends works_for(person, company)"),
    (
        "{person} (no longer work|no longer works|not work|stopped working) (for|at) {company}",
        "ends works_for(person, company)",
    ),
    ("{person} (do|does) not work (for|at) {company} [anymore]", "ends works_for(person, company)"),
    ("{company} (fired|dismissed|laid off) {person}", "ends works_for(person, company)"),
    (
        "{person} (is|am|became|was appointed|was named) [new|our new] (CEO|chief executive) of {company}",
        "has_ceo(company, person)",
    ),
    ("{person} is no longer (CEO|chief executive) of {company}", "ends has_ceo(company, person)"),
    ("{person} stepped down as (CEO|chief executive) of {company}", "ends has_ceo(company, person)"),
    ("{company}'s [new] (CEO|chief executive) is {person}", "has_ceo(company, person)"),
    ("{person} (founded|co-founded) {company}", "founded(person, company)"),
    ("{company} was founded by {person}", "founded(person, company)"),
    ("{person} (report|reports) to {manager:person}", "reports_to(person, manager)"),
    ("{person}'s (manager|boss) is {manager:person}", "reports_to(person, manager)"),
    # Companies
    ("{company} (is|was|has been) (based|headquartered) in {city:city|country}", "headquartered_in(company, city)"),
    ("{company} (moved|has moved) (its|their) headquarters to {city:city|country}", "headquartered_in(company, city)"),
    ("{company} (acquired|has acquired|bought|took over) {other:company}", "owns(company, other)"),
    ("{company} sold {other:company} to {buyer:company}", "ends owns(company, other); owns(buyer, other)"),
    ("{company} (is|was) acquired by {buyer:company}", "owns(buyer, company)"),
    ("{unit:company} is (part|subsidiary) of {company}", "part_of(unit, company)"),
    (
        f"{{company}} ({_CALLED}) {{new:company}}",
        "alias(company, new); @name(company) = {new}",
    ),
    # Family
    (
        "{person} (married|got married to|is married to|am married to|has married) {other:person}",
        "married_to(person, other)",
    ),
    ("{person} and {other:person} (married|got married|are married|have married)", "married_to(person, other)"),
    ("{person}'s (wife|husband|spouse) (is|is called) {other:person}", "married_to(person, other)"),
    ("{person}'s (wife|husband|spouse) {other:person}", "married_to(person, other)"),
    ("{other:person} is {person}'s (wife|husband|spouse)", "married_to(person, other)"),
    (
        "{person} (divorced|got divorced from|is divorced from|am divorced from) {other:person}",
        "ends married_to(person, other)",
    ),
    ("{person} and {other:person} (divorced|got divorced|are divorced|separated)", "ends married_to(person, other)"),
    ("{person}'s (son|daughter|child) is {other:person}", "parent_of(person, other)"),
    ("{person}'s (brother|sister) is {other:person}", "sibling_of(person, other)"),
    ("{person}'s (brother|sister) {other:person}", "sibling_of(person, other)"),
    ("{person} (am|is) friends with {other:person}", "friend_of(person, other)"),
    ("{person}'s friend {other:person}", "friend_of(person, other)"),
    # Orders
    (
        f"{{person}} {_BOUGHT} {{item:product|order|thing}}",
        "ordered(person, item)",
    ),
    (
        "{person} (returned|have returned|has returned|sent back|am returning|is returning) {item:product|order|thing}",
        "returned(person, item)",
    ),
    ("{order} (arrived|has arrived)", "@status(order) = delivered"),
    ("{order} (contains|contained|includes) {item:product|thing}", "contains(order, item)"),
    ("{order}'s (status|state) is {status:words}", "@status(order) = {status}"),
    ("status of {order} is {status:words}", "@status(order) = {status}"),
    ("{item:product|order|any} (costs|cost|is priced at) {price:amount}", "@price(item) = {price}"),
    ("price of {item:product|order|any} (is|was|rose to|fell to|dropped to) {price:amount}", "@price(item) = {price}"),
    # Properties and belongings of people
    ("{person}'s (email|e-mail|email address|e-mail address) is {email}", "@email(person) = {email}"),
    ("{person}'s new (email|e-mail|email address|e-mail address) is {email}", "@email(person) = {email}"),
    ("{person}'s name is {new:person}", "alias(person, new); @name(person) = {new}"),
    ("{person} am called {new:person}", "alias(person, new); @name(person) = {new}"),
    ("{person}'s favourite (colour|color) is {colour:words}", "@favourite_colour(person) = {colour}"),
    ("{person} (own|owns) {item:product|company|any}", "owns(person, item)"),
)
_FUTURE: tuple[tuple[str, str], ...] = (
    (
        f"{{person}} ({_MOVING}) to {{city:city|country}}",
        "lives_in(person, city)",
    ),
    ("{person} (will join|am joining|is joining) {company}", "works_for(person, company)"),
    ("{person} (will leave|am leaving|is leaving) {company}", "ends works_for(person, company)"),
    ("{company} (will be called|will be renamed to) {new:company}", "@name(company) = {new}"),
)
"""A statement about the future needs a date."""

# -- problems with what was ordered ---------------------------------------------------------------

_DAMAGE = "damaged|broken|cracked|scratched|dented|torn|ripped|shattered|smashed"
_DEFECT = "defective|faulty|incomplete"
_ARRIVED = "arrived|has arrived|have arrived|came|was delivered|were delivered"
_BADLY = "[badly|completely|totally|severely|heavily|slightly|partly|with]"
_FAILS = "stopped working|does not work|do not work|did not work|not working|does not turn on|will not turn on"
_NOT_THERE = (
    "never arrived|never came|has not arrived|have not arrived|did not arrive yet|did not arrive at all|got lost"
)
_ITEM = "{item:product|thing}"
_ASKS = (
    "want|would like|need|request|requested|demand|expect|ask for|asked for|am asking for|is asking for|claim|claimed"
)
_REFUND = "(refund|full refund|partial refund|replacement|reimbursement) (for|on)"

_PROBLEMS: tuple[tuple[str, str], ...] = (
    ("damaged", f"({_ARRIVED}) {_BADLY} ({_DAMAGE})"),
    ("defective", f"({_ARRIVED}|is|was|are|were) {_BADLY} ({_DEFECT})"),
    ("defective", f"({_FAILS})"),
    ("missing", f"({_NOT_THERE})"),
    ("late", f"({_ARRIVED}) late"),
)
"""The kind of a problem, and what is said of something that has it."""


def _problem_rules() -> Iterator[tuple[str, str]]:
    """Yield rules about orders that went wrong: of an order without a number, the name follows from its item."""
    for kind, problem in _PROBLEMS:
        placed = 'ordered(person, item); contains("{item} order": order, item)'
        of_order = f'{placed}; has_issue("{{item}} order": order, "{kind} {{item}}": issue)'
        yield f"{_ITEM} [that|which] {{person}} {_BOUGHT} [online|here|from you] {problem}", of_order
        yield f"{_ITEM} [that|which] {{person}} {_BOUGHT} (from|at|on) {{shop:company|any}} {problem}", of_order
        yield (
            f"{{person}} {_BOUGHT} {_ITEM} [,|online|online ,] (but|and) {{again:person}} (it|they) {problem}",
            of_order,
        )
        yield f"{{order}} {problem}", f'has_issue(order, "{kind} {{order}}": issue)'
        anonymous = '"order of {person}": order'
        issue = f'"{kind} order of {{person}}": issue'
        yield (
            f"{{person}}'s (order|package|parcel|delivery|shipment) {problem}",
            f"ordered(person, {anonymous}); has_issue({anonymous}, {issue})",
        )
    for kind, words in (("damaged", _DAMAGE), ("defective", _DEFECT)):
        broken = f'has_issue(item, "{kind} {{item}}": issue)'
        yield f"{_ITEM} ({_ARRIVED}) {_BADLY} ({words})", broken
        yield f"{{person}} ({_ASKS}) {_REFUND} ({words}) {_ITEM}", broken
        yield f"{{person}} (received|got|have received) ({words}) {_ITEM}", broken


_REFUNDS: tuple[tuple[str, str], ...] = (
    (f"{{person}} ({_ASKS}) {_REFUND} [{_DAMAGE}|{_DEFECT}] {_ITEM}", "requested_refund_for(person, item)"),
    (f"{{person}} ({_ASKS}) {_REFUND} {{order}}", "requested_refund_for(person, order)"),
    (
        f"{{person}} ({_ASKS}) {{own:person}}'s money back for [{_DAMAGE}|{_DEFECT}] {_ITEM}",
        "requested_refund_for(person, item)",
    ),
    ("(please refund|refund) {order}", "@refund(order) = requested"),
)
_STATES = ("returned", "cancelled", "delivered", "shipped", "refunded", "lost", "paid", "delayed")
_SPELLING_VARIANTS = {"cancelled": "(cancelled|canceled)"}


def _rules() -> tuple[Rule, ...]:
    states = [
        (f"{{order}} (was|has been|is|got) {_SPELLING_VARIANTS.get(state, state)}", f"@status(order) = {state}")
        for state in _STATES
    ]
    everyday = (*_STATEMENTS, *states, *_problem_rules(), *_REFUNDS)
    present = [compile_rule(when, [then]) for when, then in everyday]
    return (*present, *(compile_rule(when, [then], since="required") for when, then in _FUTURE))


BUILTIN_RULES = _rules()
"""The built-in rules; an application's rules come before them."""
