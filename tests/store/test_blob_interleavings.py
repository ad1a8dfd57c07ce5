"""docs/blobs.md: a content goes with its last reference and never before, in whatever order processes take their steps.

All orders of a few writers and removers of one content are gone through, each step being one request to the store, with
and without one of them dying on the way.
"""

from __future__ import annotations

import types
from collections.abc import AsyncIterator, Callable, Coroutine, Generator
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any, TypeVar

import pytest

from sharedmem.blobs.blobs import Blobs

T = TypeVar("T")
BODY = b"the content"


@types.coroutine
def turn() -> Generator[None, None, None]:
    """Where the others may come in between."""
    yield


class SteppedStore:
    """A store whose every request is one step; `heeds_marks=False` makes it the control."""

    place = "a dictionary"

    def __init__(self, *, heeds_marks: bool = True) -> None:
        self.objects: dict[str, str] = {}
        self.acting = "nobody"
        self.told: dict[str, tuple[object, ...]] = {}
        self._heeds_marks = heeds_marks
        self._short: dict[str, str] = {}

    async def put(self, name: str, _: bytes) -> None:
        await turn()
        self._tell("put")
        # The mark says whose step made it: the same in whatever order it came.
        self.objects[name] = f"{self.acting} {len(self.told[self.acting])}"

    async def get(self, _: str) -> bytes | None:
        raise AssertionError("no caller reads here")

    async def mark(self, name: str) -> str | None:
        await turn()
        return self._tell(self.objects.get(name))

    async def delete(self, name: str, *, mark: str | None = None) -> None:
        await turn()
        self._tell("delete")
        if mark is None or not self._heeds_marks or self.objects.get(name) == mark:
            self.objects.pop(name, None)

    async def list(self, prefix: str) -> AsyncIterator[tuple[str, float]]:
        await turn()
        names = sorted(name for name in self.objects if name.startswith(prefix))
        self._tell(tuple(map(self._in_short, names)))
        for name in names:
            yield name, 0.0

    async def close(self) -> None:
        """Nothing is open."""

    @property
    def fingerprint(self) -> object:
        """What there is and what each has been told: nothing else decides how it goes on."""
        there = sorted((self._in_short(name), mark) for name, mark in self.objects.items())
        return (tuple(there), tuple(sorted(self.told.items())))

    def _tell(self, answer: T) -> T:
        self.told[self.acting] = (*self.told.get(self.acting, ()), answer)
        return answer

    def _in_short(self, name: str) -> str:
        # Names end in random ids; here they are counted, key by key.
        if name not in self._short:
            stem = name.rpartition("-")[0] if "content" not in name else name
            self._short[name] = f"{stem}#{sum(known.startswith(f'{stem}#') for known in self._short.values())}"
        return self._short[name]


@dataclass
class World:
    """The store, and the references that keys hold by now."""

    store: SteppedStore
    held: dict[str, str] = field(default_factory=dict)

    @property
    def blobs(self) -> Blobs:
        return Blobs(self.store)

    async def write(self, key: str) -> None:
        reference = await self.blobs.put(key, b"json", BODY)
        replaced, self.held[key] = self.held.get(key), reference.path
        if replaced is not None:
            await self.blobs.remove(key, replaced)

    async def delete(self, key: str) -> None:
        if (path := self.held.pop(key, None)) is not None:
            await self.blobs.remove(key, path)

    async def write_and_delete(self, key: str) -> None:
        await self.write(key)
        await self.delete(key)

    async def sweep(self, _: str) -> None:
        contents = [name async for name, _ in self.store.list("") if name.endswith("/content")]
        for name in contents:
            await self.blobs._collect(name.rpartition("/")[0])

    def check(self) -> None:
        """Whatever a key refers to is there."""
        for key, path in self.held.items():
            assert path in self.store.objects, f"the reference of {key} is gone"
            assert f"{path.rpartition('/')[0]}/content" in self.store.objects, f"the content of {key} is gone"

    def check_the_end(self) -> None:
        """Nothing else is there."""
        assert self.store.objects.keys() == {
            name for path in self.held.values() for name in (path, f"{path.rpartition('/')[0]}/content")
        }


Doing = Callable[[World, str], Coroutine[Any, Any, None]]
DEATH = "dies"


def finish(coroutine: Coroutine[Any, Any, None]) -> None:
    with suppress(StopIteration):
        while True:
            coroutine.send(None)


@dataclass
class Explorer:
    """Goes through all orders of what the actors do, each under its own key."""

    actors: dict[str, Doing]
    start_with: tuple[str, ...] = ()
    heeds_marks: bool = True
    one_dies: bool = False
    seen: set[object] = field(default_factory=set)
    ends: int = 0

    def explore(self) -> int:
        """Returns how many different ends there are."""
        waiting: list[tuple[str, ...]] = [()]
        while waiting:
            order = waiting.pop()
            waiting += [(*order, step) for step in self._next_steps(order)]
        return self.ends

    def _next_steps(self, order: tuple[str, ...]) -> list[str]:
        world, running, died = self._replayed(order)
        world.check()
        fingerprint = (world.store.fingerprint, tuple(sorted(running)), died, tuple(sorted(world.held)))
        if fingerprint in self.seen:
            return []
        self.seen.add(fingerprint)
        if not running:
            self._end(world, died=died)
        deaths = [f"{DEATH} {name}" for name in running] if self.one_dies and not died else []
        return [*running, *deaths]

    def _replayed(self, order: tuple[str, ...]) -> tuple[World, list[str], bool]:
        world = World(SteppedStore(heeds_marks=self.heeds_marks))
        for key in self.start_with:
            finish(world.write(key))
        doing = {name: act(world, name) for name, act in self.actors.items()}
        for actor, coroutine in doing.items():
            self._step(world, actor, coroutine)  # up to its first request
        running = dict(doing)
        for step in order:
            actor = step.rpartition(" ")[2]
            if step.startswith(DEATH) or not self._step(world, actor, running[actor]):
                del running[actor]
        for coroutine in doing.values():
            coroutine.close()
        return world, list(running), any(step.startswith(DEATH) for step in order)

    def _step(self, world: World, actor: str, coroutine: Coroutine[Any, Any, None]) -> bool:
        world.store.acting = actor
        try:
            coroutine.send(None)
        except StopIteration:
            return False
        return True

    def _end(self, world: World, *, died: bool) -> None:
        self.ends += 1
        if died:  # what it left behind is swept an hour later
            for path in [name for name in world.store.objects if "/content" not in name]:
                if path not in world.held.values():
                    finish(world.store.delete(path))
            finish(world.sweep(""))
        world.check()
        world.check_the_end()


SCENES = {
    "one deletes, another writes": Explorer({"n:a:1": World.delete, "n:a:2": World.write}, ("n:a:1",)),
    "two delete, a third writes": Explorer(
        {"n:a:1": World.delete, "n:a:2": World.delete, "n:a:3": World.write}, ("n:a:1", "n:a:2")
    ),
    "one deletes, two write": Explorer({"n:a:1": World.delete, "n:a:2": World.write, "n:a:3": World.write}, ("n:a:1",)),
    "a key is written anew while another is deleted": Explorer(
        {"n:a:1": World.write, "n:a:2": World.delete}, ("n:a:1", "n:a:2")
    ),
    "one sweeps, one deletes, one writes": Explorer(
        {"n:a:1": World.delete, "n:a:2": World.write, "n:a:3": World.sweep}, ("n:a:1",)
    ),
    "two write and delete": Explorer({"n:a:1": World.write_and_delete, "n:a:2": World.write_and_delete}),
}


@pytest.mark.parametrize("one_dies", [False, True], ids=["all live", "one dies"])
@pytest.mark.parametrize("scene", SCENES.values(), ids=SCENES)
def test_no_order_loses_a_content_or_leaves_one_behind(scene: Explorer, *, one_dies: bool) -> None:
    explorer = Explorer(scene.actors, scene.start_with, one_dies=one_dies)

    assert explorer.explore() >= 2


def test_three_that_write_and_delete_lose_nothing() -> None:
    assert Explorer(dict.fromkeys(("n:a:1", "n:a:2", "n:a:3"), World.write_and_delete)).explore() >= 2


def test_the_search_finds_the_loss_where_marks_are_not_heeded() -> None:
    scene = SCENES["one deletes, another writes"]

    with pytest.raises(AssertionError, match="the content of n:a:2 is gone"):
        Explorer(scene.actors, scene.start_with, heeds_marks=False).explore()
