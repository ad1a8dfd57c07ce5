"""Whether a short question finds the short fact that answers it, without a model: the first hit of notes and memories.

python benchmarks/short_facts.py                    all sets, default embedder
python benchmarks/short_facts.py --embedder onnx    another one; `none` for words alone
python benchmarks/short_facts.py --facts benchmarks/short_facts_languages.jsonl
                                                    25 facts, the same in four languages, and across two

Facts and questions are our own (short_facts.jsonl), 50 of each in a set. The rules of `text.statements` were tuned with
`tuned`; `held_out` was written before that by the same person, `fresh` after the first version and seen since, `blind`
after the last version and never tuned with.
"""

from __future__ import annotations

import argparse
import asyncio
import json
from collections.abc import Mapping, Sequence
from pathlib import Path

from sharedmem import Hub, Settings
from sharedmem.testing import fake_hub

FACTS = Path(__file__).parent / "short_facts.jsonl"


def read_sets(path: Path = FACTS) -> dict[str, list[Mapping[str, str]]]:
    """Return facts with their questions, by set."""
    sets: dict[str, list[Mapping[str, str]]] = {}
    for line in path.read_text(encoding="utf-8").splitlines():
        row = json.loads(line)
        sets.setdefault(row["set"], []).append(row)
    return sets


async def first_hits(hub: Hub, name: str, rows: Sequence[Mapping[str, str]]) -> tuple[float, float, float]:
    """Return the share of questions whose first hit is right: of notes, of memories, and of recall over both."""
    store = hub.store(name.replace("_", "-"))
    notes, memory = store.synthesis, store.memory.within(user_id="ada")
    tasks = [await notes.add_agent_memory(app_id="main", user_id="ada", messages=row["fact"]) for row in rows]
    for task in tasks:
        await notes.wait(task.task_id, timeout=120)
    await memory.add_many([row["fact"] for row in rows], dedup=False)
    right = [0, 0, 0]
    for row in rows:
        noted = await notes.query_memory(app_id="main", user_id="ada", query=row["question"])
        found = await memory.search(row["question"], limit=1)
        known = await store.recall(row["question"], user_id="ada")
        first = [
            noted[0].memory_note if noted else "",
            found[0].item.memory if found else "",
            known.items[0].text if known.items else "",
        ]
        for place, text in enumerate(first):
            right[place] += row["fact"] in text
    noted_share, found_share, known_share = (count / len(rows) for count in right)
    return noted_share, found_share, known_share


async def measure(embedder: str, facts: Path) -> None:
    """Print the figures of each set."""
    print(f"{'set':<18} {'notes':>6} {'memory':>7} {'recall':>7}")
    async with fake_hub(settings=Settings(embedder=embedder)) as hub:
        for name, rows in read_sets(facts).items():
            shares = await first_hits(hub, name, rows)
            print(f"{name:<18} " + " ".join(f"{share:>6.2f}" for share in shares), flush=True)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--embedder", default="wordllama")
    parser.add_argument("--facts", type=Path, default=FACTS, metavar="FILE", help="facts and questions, by set")
    asked = parser.parse_args()
    asyncio.run(measure(asked.embedder, asked.facts))
