"""Made-up days of three teams of agents: what they ask a language model, and what they note down.

Each intent has a few wordings and is asked as often as its place in a Zipf distribution says. The shares below are
assumptions, stated on the page beside what was measured: with others the savings are others.
"""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence
from itertools import accumulate, product
from typing import NamedTuple

Wordings = tuple[str, ...]
"""One thing said in several ways; the first is the usual one."""

AGENTS = 8
REWORDED = 0.3
"""Share of calls and notes that do not use the usual wording."""


class ModelCall(NamedTuple):
    """A prompt of one agent, with the intent behind it."""

    agent: str
    prompt: str
    intent: str


class Note(NamedTuple):
    """A sentence that an agent keeps, with the fact that it states."""

    agent: str
    text: str
    fact: str


class Workload(NamedTuple):
    """One team's day."""

    name: str
    about: str
    questions: Sequence[Wordings]
    facts: Sequence[Wordings]
    skew: float
    """Exponent of the Zipf distribution over the questions: 0 asks all equally often."""
    single: float
    """Share of prompts that occur once: they name something new."""
    noted_by: int
    """How many agents note a fact, on average."""

    def rounds(self, count: int, seed: int) -> Iterator[list[ModelCall]]:
        """Yield prompts in groups; the agents of a group ask at the same time."""
        chosen = random.Random(f"{self.name} {seed}")
        order = list(self.questions)
        chosen.shuffle(order)
        weights = list(accumulate(1 / place**self.skew for place in range(1, len(order) + 1)))
        made = 0
        while made < count:
            group = []
            for agent in range(AGENTS):
                made += 1
                wordings = chosen.choices(order, cum_weights=weights)[0]
                text = _worded(wordings, chosen)
                if chosen.random() < self.single:
                    text = f"{text} This is about case {made + 10_000}."
                    group.append(ModelCall(f"agent-{agent}", text, f"{wordings[0]} {made}"))
                else:
                    group.append(ModelCall(f"agent-{agent}", text, wordings[0]))
            yield group

    def notes(self, count: int, seed: int) -> list[Note]:
        """Return notes in the order in which they are made; `count` facts at most."""
        chosen = random.Random(f"{self.name} notes {seed}")
        facts = chosen.sample(list(self.facts), min(count, len(self.facts)))
        notes = [
            Note(f"agent-{chosen.randrange(AGENTS)}", _worded(wordings, chosen), wordings[0])
            for wordings in facts
            for _ in range(chosen.randint(1, 2 * self.noted_by - 1))
        ]
        chosen.shuffle(notes)
        return notes


def _worded(wordings: Wordings, chosen: random.Random) -> str:
    return chosen.choice(wordings[1:]) if chosen.random() < REWORDED and len(wordings) > 1 else wordings[0]


def _filled(templates: Sequence[Wordings], **slots: Sequence[str]) -> list[Wordings]:
    """Return the templates with every combination of values of the slots that they name."""
    found = []
    for wordings in templates:
        names = [name for name in slots if f"{{{name}}}" in wordings[0]]
        for values in product(*(slots[name] for name in names)):
            given = dict(zip(names, values, strict=True))
            found.append(tuple(one.format(**given) for one in wordings))
    return found


_PRODUCTS = ("kettle", "lamp", "router", "printer", "heater", "camera")
_PLACES = ("Bergen", "Lyon", "Porto", "Graz", "Turin")
_PEOPLE = ("Ada Berg", "Ben Costa", "Cleo Dahl", "Dan Evers", "Eva Funk", "Finn Gray", "Gil Hart", "Ida Jansen")
_DAYS = ("Monday", "Wednesday", "Friday")
_PAPERS = tuple(
    f"{topic} in {field}"
    for topic, field in product(
        ("Sparse attention", "Contrastive training", "Graph retrieval", "Tool use", "Long context"),
        ("dialogue", "search", "biology", "law"),
    )
)
_FILES = tuple(f"src/{part}/{file}.py" for part in ("store", "api", "jobs") for file in ("config", "client", "retry"))
_FUNCTIONS = ("parse_config", "open_session", "flush_batch", "next_delay")

SUPPORT = Workload(
    "support desk",
    "customers' questions about six products, answered from one handbook",
    _filled(
        (
            ("How do I reset the {product}?", "What do I do to reset my {product}?", "resetting the {product}, how?"),
            ("How long is the warranty of the {product}?", "For how long is the {product} under warranty?"),
            (
                "The {product} does not switch on.",
                "My {product} won't turn on.",
                "I cannot start the {product}.",
            ),
            (
                "Can I return the {product}?",
                "Is it possible to send the {product} back?",
                "I want to return the {product}.",
            ),
            ("Where can I buy a spare part for the {product}?", "Who sells spare parts for the {product}?"),
            ("Does the {product} ship to {place}?", "Do you deliver the {product} to {place}?"),
            ("How do I change my delivery address?", "I need to change the address of a delivery."),
            ("Where do I find my invoice?", "How can I download my invoice?"),
        ),
        product=_PRODUCTS,
        place=_PLACES,
    ),
    _filled(
        (
            ("{person} prefers to be called by phone.", "{person} would rather be phoned."),
            ("{person} has a {product} that was repaired in May.", "The {product} of {person} was repaired in May."),
            ("The delivery to {person} comes on {day}.", "{person} gets the delivery on {day}."),
        ),
        person=_PEOPLE,
        product=_PRODUCTS,
        day=_DAYS,
    ),
    skew=1.0,
    single=0.2,
    noted_by=3,
)
RESEARCH = Workload(
    "research team",
    "agents that read twenty papers for several reports",
    _filled(
        (
            ("Summarise the paper '{paper}' in five sentences.", "Give a five-sentence summary of '{paper}'."),
            ("Which data does '{paper}' use?", "What data sets are used in '{paper}'?"),
            ("What are the limits of the method in '{paper}'?", "Name the limitations of '{paper}'."),
            ("List the baselines of '{paper}'.", "Against which baselines is '{paper}' compared?"),
            ("Which open questions does '{paper}' name?", "What does '{paper}' leave open?"),
        ),
        paper=_PAPERS,
    ),
    _filled(
        (
            ("'{paper}' trains on public data only.", "Only public data is used for training in '{paper}'."),
            ("The code of '{paper}' is available.", "'{paper}' comes with its code."),
            ("'{paper}' reports no variance.", "There is no variance reported in '{paper}'."),
        ),
        paper=_PAPERS,
    ),
    skew=0.6,
    single=0.3,
    noted_by=3,
)
CODING = Workload(
    "coding agents",
    "agents that work on one repository: explanations, reviews, failing tests",
    _filled(
        (
            ("Explain the function {function} in {file}.", "What does {function} in {file} do?"),
            ("Write a test for {function} in {file}.", "Add a unit test of {function} from {file}."),
            ("Who calls {function} in {file}?", "List the callers of {function} in {file}."),
            ("How is the repository laid out?", "Describe the layout of this repository."),
        ),
        function=_FUNCTIONS,
        file=_FILES,
    ),
    _filled(
        (
            ("{function} in {file} may be called twice.", "It is safe to call {function} in {file} twice."),
            ("{file} is generated: change its template.", "Do not edit {file}, it is generated from a template."),
            ("The tests of {file} need a server.", "Testing {file} requires a running server."),
        ),
        function=_FUNCTIONS,
        file=_FILES,
    ),
    skew=0.9,
    single=0.5,
    noted_by=2,
)
WORKLOADS = (SUPPORT, RESEARCH, CODING)
