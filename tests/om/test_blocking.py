"""Models of a store without `await`, and what `import sharedmem` and a missing extra mean for them."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from sharedmem import Settings, UnsupportedError, om
from sharedmem.clock import new_id
from sharedmem.sync import Hub, SharedMemoryStore

_TESTS = Path(__file__).resolve().parents[1]


@pytest.fixture
def desk(redis_url: str, settings: Settings) -> Iterator[SharedMemoryStore]:
    with Hub.open(redis_url, settings=settings) as hub:
        name = f"om-{new_id(8)}"
        yield hub.store(name, actor="ada")
        hub.store(name).clear()


def test_a_model_of_a_blocking_store_returns_results(desk: SharedMemoryStore) -> None:
    for number in range(4):
        desk.memory.add(f"The tide of note {number}", user_id=f"u{number % 2}", dedup=False)
    memories = om.models(desk).Memory

    query = memories.find(memories.user_id == "u1").sort_by("-timestamp")
    assert query.count() == 2
    assert [one.memory for one in query.page(0, 1)] == ["The tide of note 3"]
    assert query.first().memory == query[0].memory == query.get_item(0).memory
    assert [one.memory for one in query] == [one.memory for one in query.all()]
    assert query.values("user_id").all() == [{"user_id": "u1"}, {"user_id": "u1"}]
    assert query.only("user_id").first().user_id == "u1"
    assert memories.find().nearest("The tide of note 2", k=1).first().memory == "The tide of note 2"
    assert memories.get(query.first().id).user_id == "u1"
    with pytest.raises(UnsupportedError, match=r"store\.memory\.delete"):
        query.delete()
    with pytest.raises(UnsupportedError, match=r"store\.memory\.update"):
        query.update(user_id="x")
    with pytest.raises(UnsupportedError, match=r"store\.memory\.add"):
        query.first().save()


def test_importing_sharedmem_or_its_models_does_not_load_redis_om() -> None:
    code = "import sharedmem, sharedmem.om, sys; print([m for m in sys.modules if m.split('.')[0] == 'aredis_om'])"

    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)

    assert done.stdout.strip() == "[]"


def test_without_the_extra_one_sentence_names_it() -> None:
    program = """
from sharedmem import om

try:
    om.models(None)
except Exception as error:
    print(type(error).__name__, error)
"""
    task = {"extras": ["memory"], "program": program}
    done = subprocess.run(
        [sys.executable, "-m", "support.python_without_extras", json.dumps(task)],
        cwd=_TESTS,
        capture_output=True,
        text=True,
        check=True,
    )

    printed = json.loads(done.stdout)["printed"].strip()
    assert printed == "UnsupportedError models of redis-om is not available here: pip install 'sharedmem-hub[om]'"
