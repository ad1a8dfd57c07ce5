"""`sharedmem calibrate`, and of `cache` and `memories`: the choice of thresholds."""

from __future__ import annotations

import gzip
import json
from pathlib import Path

import pytest
from support.shell import Shell, on_a_terminal

pytestmark = pytest.mark.usefixtures("hashing_embedder")


@pytest.fixture
def labelled(tmp_path: Path) -> Path:
    """Forty pairs, and two lines that are none."""
    same = [
        {"a": f"how do I cook dish{n} well", "b": f"how do I cook dish{n} very well", "same": True} for n in range(20)
    ]
    other = [{"a": f"how do I cook dish{n} well", "b": f"where is town{n} on a map", "same": False} for n in range(20)]
    lines = [json.dumps(pair) for pair in same + other]
    file = tmp_path / "pairs.jsonl"
    file.write_text("\n".join(["oops", *lines, '{"a": 1}']), encoding="utf-8")
    return file


@pytest.mark.parametrize(
    ("group", "option", "setting"),
    [
        ("cache", "--max-false-hits", "SHAREDMEM_CACHE_SIMILARITY"),
        ("memories", "--max-false-merges", "SHAREDMEM_DEDUP_SIMILARITY"),
    ],
)
def test_a_threshold_is_advised(shell: Shell, labelled: Path, group: str, option: str, setting: str) -> None:
    """docs/cache.md, docs/memory.md: `calibrate` prints the setting."""
    done = shell(group, "calibrate", str(labelled), option, "0.05")

    told = done.data
    assert (told["embedder"], told["same"], told["different"], told["bad_lines"]) == ("hashing:64", 20, 20, [1, 42])
    assert told["advice"]["different_hit"] <= 0.05
    assert told["setting"] == f"{setting}={told['advice']['threshold']:g}"
    assert told["curve"][0]["threshold"] == 1.0
    assert "2 lines hold no pair: 1, 42" in done.err


def test_all_thresholds_of_an_embedder_are_measured_at_once(shell: Shell, labelled: Path) -> None:
    """docs/cache.md: `sharedmem calibrate` prints what the table of embedders has."""
    told = shell("calibrate", str(labelled)).data

    found = told["thresholds"]
    assert (told["embedder"], told["pairs"], told["bad_lines"]) == ("hashing:64", 40, [1, 42])
    assert found["recall"] == found["score"] <= found["noise"] <= found["link"] <= 1
    assert found["dedup"] <= found["cache"] <= 1
    assert f"SHAREDMEM_DEDUP_SIMILARITY={found['dedup']:g}" in told["settings"]


def test_a_compressed_file_is_read_too(shell: Shell, labelled: Path, tmp_path: Path) -> None:
    packed = tmp_path / "pairs.jsonl.gz"
    packed.write_bytes(gzip.compress(labelled.read_bytes()))

    assert shell("cache", "calibrate", str(packed)).data == shell("cache", "calibrate", str(labelled)).data


def test_a_file_without_pairs_is_refused(shell: Shell, tmp_path: Path) -> None:
    empty, broken = tmp_path / "empty.jsonl", tmp_path / "broken.gz"
    empty.write_text("\n", encoding="utf-8")
    broken.write_bytes(gzip.compress(b"x" * 1000)[:20])

    assert "holds no line such as" in shell("cache", "calibrate", str(empty)).err
    assert "cannot be read" in shell("cache", "calibrate", str(broken)).err
    assert shell("cache", "calibrate", str(tmp_path)).code == 2


def test_without_an_embedder_there_is_nothing_to_calibrate(
    shell: Shell, labelled: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SHAREDMEM_EMBEDDER", "none")

    done = shell("cache", "calibrate", str(labelled))

    assert done.code != 0
    assert "sharedmem-hub[local]" in done.err


def test_people_see_the_curve(shell: Shell, labelled: Path) -> None:
    screen = on_a_terminal("--namespace", shell.namespace, "cache", "calibrate", str(labelled)).out

    for words in ("threshold", "0.98", "━", "export SHAREDMEM_CACHE_SIMILARITY=", "too few", "hold no pair"):
        assert words in screen
