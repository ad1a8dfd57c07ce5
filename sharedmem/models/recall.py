"""Records of `store.recall` and `store.remember`: what an agent should know now, and what became of what it said."""

from __future__ import annotations

from typing import Literal

from pydantic import AwareDatetime, Field

from sharedmem.models.record import Record

RecallSource = Literal["memory", "fact", "entity", "episode", "summary", "note", "value"]
"""What a line was: a memory; a fact, entity, episode or summary of the graph; a note of synthesis; a shared value."""
RecallPart = Literal["memory", "graph", "notes"]
"""The parts of a store that `recall` searches and `remember` writes."""


class RecalledItem(Record):
    """One line of what an agent should know, with its origin."""

    source: RecallSource
    id: str
    """Id of the record in its part of the store; of a value, its key."""
    text: str
    """What it says; of a long text the sentences that answer best, with `...` where others are left out."""
    score: float
    """How much it has to do with the question, 0 to 1: words in common and similarity, by the scale of the embedder."""
    at: AwareDatetime | None = None
    """When it happened or was written; of a fact, since when it holds."""
    until: AwareDatetime | None = None
    """Until when a fact holds, exclusive; None while it does."""
    author: str | None = None
    """The speaker, or the actor that wrote it."""
    tokens: int = 0
    """Tokens of its line in the text."""
    cut: bool = False
    """Whether `text` is a part of the record."""
    repeats: tuple[str, ...] = ()
    """Records that say the same and were left out for it, such as `fact 17`."""
    newer: str | None = None
    """A record in this answer, such as `memory 4f`, that is newer and says otherwise."""


class RecalledContext(Record):
    """What an agent should know now for a question, packed into a budget of tokens."""

    question: str
    text: str
    """The lines for a prompt, quoted as data; empty if nothing is known."""
    items: tuple[RecalledItem, ...] = ()
    """The same as records, in the order of the lines."""
    standing: tuple[RecalledItem, ...] = ()
    """Standing instructions and preferences of the user who asks, as the first lines of the text have them."""
    tokens: int = 0
    """Tokens of `text`; never more than the budget."""
    tokens_by: str = "estimate"
    """The encoding that counted the tokens, such as `o200k_base`, or `estimate`: no tokenizer of the model is here."""
    left_out: int = 0
    """How many more records were found and had no room."""
    repeated: int = 0
    """How many were left out because another one says the same."""
    as_of: AwareDatetime | None = None
    """The requested time; None for now."""
    degraded: tuple[str, ...] = ()
    """Parts that were searched by words alone or could not be searched, each with the reason."""
    round_trips: int = 0
    """Round trips that were waited for; the parts are searched at the same time."""


class RememberCost(Record):
    """What it cost to file a conversation."""

    model_calls: int = 0
    model_tokens: int = 0
    """Tokens sent to the language model and written by it, counted as `recall` counts them."""


class RememberReceipt(Record):
    """What became of a conversation or text that was remembered."""

    task_id: str
    status: Literal["pending", "running", "done", "failed"]
    memories: tuple[str, ...] = ()
    """Ids of the memories that hold its messages, in their order."""
    merged: tuple[str, ...] = ()
    """Those among them that were there before and say the same."""
    episodes: tuple[str, ...] = ()
    """Ids of its episodes in the graph."""
    facts: tuple[str, ...] = ()
    """Ids of the facts that they state."""
    closed_facts: tuple[str, ...] = ()
    """Ids of earlier facts that they end."""
    note: str | None = None
    """Id of the note that holds it, or of the note that it was merged into."""
    skipped: dict[str, str] = Field(default_factory=dict)
    """Why a part was not written, by `memory`, `graph` and `notes`."""
    remarks: tuple[str, ...] = ()
    """What was done in another way than usual, in sentences."""
    cost: RememberCost = RememberCost()
    attempts: int = 0
    error: str | None = None
    """Why it failed."""
