"""A chat over a year: a turn from last winter is found in any session, by meaning and by words.

python examples/remembering/long_chat.py                              the conversation beside this file
python examples/remembering/long_chat.py --folder PATH --group ID     your own: items.jsonl(.gz), queries.jsonl(.gz)
python examples/remembering/long_chat.py --talk                       then ask it yourself
"""

from __future__ import annotations

import argparse
import asyncio
import gzip
import json
import sys
from pathlib import Path
from typing import Any

from sharedmem import Hub, SharedMemoryStore
from sharedmem.models import MemoryItem, MemoryMessage

HERE = Path(__file__).resolve().parent
WINDOW = 20


def read(path: Path) -> list[dict[str, Any]]:
    """Return the objects of a file of JSON lines, compressed or not."""
    found = path if path.exists() else path.with_name(f"{path.name}.gz")
    data = gzip.decompress(found.read_bytes()) if found.suffix == ".gz" else found.read_bytes()
    return [json.loads(line) for line in data.splitlines() if line]


def turn(row: dict[str, Any]) -> MemoryItem:
    """Return the memory of a turn of the conversation."""
    return MemoryItem(
        memory=row["text"],
        thread_id=row["session"],
        timestamp=row["timestamp"],
        messages=(MemoryMessage(role="user", name=row["speaker"], content=row["text"]),),
        metadata={"turn": row["id"]},
    )


async def listen(store: SharedMemoryStore, turns: list[dict[str, Any]]) -> None:
    """Add all turns to memory."""
    await store.memory.add_many([turn(row) for row in turns], dedup=False)


async def answer(store: SharedMemoryStore, questions: list[dict[str, Any]], last: set[str]) -> None:
    """Ask the questions, and compare with a chat that only reads its newest turns."""
    remembered = in_window = 0
    for question in questions:
        wanted = set(question["relevant"])
        hits = await store.memory.search(question["text"], limit=5)
        found = {hit.item.metadata["turn"] for hit in hits}
        remembered += bool(wanted & found)
        in_window += bool(wanted & last)
        best = hits[0].item
        print(f"{'+' if wanted & found else '-'} {question['text']}\n    {best.author}: {best.memory[:100]}")
    count = len(questions)
    print(f"\nanswered from memory (5 turns read): {remembered} of {count}")
    print(f"answered from the newest {WINDOW} turns, without memory: {in_window} of {count}")


async def talk(store: SharedMemoryStore) -> None:
    """Answer questions from standard input."""
    while question := (await asyncio.to_thread(input, "? ")).strip():
        for hit in await store.memory.search(question, limit=3):
            day = hit.item.timestamp.date() if hit.item.timestamp else ""
            print(f"  {day} {hit.item.author}: {hit.item.memory}")


async def main() -> None:
    """Add the turns, then answer."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--folder", type=Path, help="with items.jsonl and queries.jsonl, compressed or not")
    parser.add_argument("--group", help="which conversation of these files")
    parser.add_argument("--talk", action="store_true", help="ask questions afterwards")
    asked = parser.parse_args()
    if asked.folder:
        turns, questions = read(asked.folder / "items.jsonl"), read(asked.folder / "queries.jsonl")
        group = asked.group or turns[0]["group"]
        turns, questions = ([row for row in rows if row["group"] == group] for rows in (turns, questions))
    else:
        turns, questions = read(HERE / "conversation.jsonl"), read(HERE / "conversation_questions.jsonl")
    async with Hub.open() as hub:
        store = hub.store("long-chat", actor="assistant")
        await hub.store("long-chat").clear()
        await listen(store, turns)
        sessions = len({row["session"] for row in turns})
        print(f"{len(turns)} turns in {sessions} sessions\n", file=sys.stderr)
        await answer(store, questions, {row["id"] for row in turns[-WINDOW:]})
        if asked.talk:
            await talk(store)


if __name__ == "__main__":
    asyncio.run(main())
