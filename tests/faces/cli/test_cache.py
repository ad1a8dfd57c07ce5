"""`sharedmem cache`: answers looked up, kept and forgotten, and the choice of a threshold."""

from __future__ import annotations

import gzip
import json
from pathlib import Path

import pytest
from support.shell import Shell, on_a_terminal, several_on_a_terminal

PROMPT = "what is the capital of France?"

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


def test_an_answer_is_kept_found_and_forgotten(shell: Shell) -> None:
    id_ = shell("cache", "put", PROMPT, '{"city": "Paris"}', "--tag", "geo", "--cost", "0.5", "--tokens", "9").data

    found = shell("cache", "check", "What is the  capital of france?", "--tag", "geo").data

    assert (found["id"], found["response"], found["exact"]) == (id_, {"city": "Paris"}, True)
    assert shell("cache", "check", PROMPT, "--model", "other").code == 3
    assert shell("cache", "report", id_).code == 0
    stats = shell("cache", "stats").data
    assert (stats["hits"], stats["misses"], stats["false_hits"], stats["entries"]) == (1, 1, 1, 1)
    assert (stats["saved_cost"], stats["saved_tokens"]) == (0.5, 9)
    assert shell("cache", "delete", "--tag", "geo").data == 1
    assert shell("cache", "clear", "--yes").data == 0


def test_an_answer_is_found_by_meaning(shell: Shell) -> None:
    shell("cache", "put", PROMPT, "Paris")

    found = shell("cache", "check", "so what is the capital of France?", "--threshold", "0.8").data

    assert (found["response"], found["exact"]) == ("Paris", False)


@pytest.mark.parametrize(
    ("words", "code", "told"),
    [
        (("check", " "), 2, "prompt"),
        (("check", "hi", "--threshold", "1.5"), 2, "threshold"),
        (("put", "hi", "there", "--ttl", "0"), 2, "ttl"),
        (("invalidate",), 2, "give a tag"),
        (("clear",), 2, "--yes"),
        (("report", "no id!"), 2, "id"),
        (("calibrate", "missing.jsonl"), 3, "missing.jsonl"),
    ],
)
def test_a_mistake_is_told_in_a_sentence(shell: Shell, words: tuple[str, ...], code: int, told: str) -> None:
    done = shell("cache", *words)

    assert (done.code, done.out) == (code, "")
    assert done.err.startswith("sharedmem: ")
    assert told in done.err


def test_people_see_answers_and_counts(shell: Shell) -> None:
    place = ["--data-dir", str(shell.data_dir), "--namespace", shell.namespace, "cache"]

    screen = several_on_a_terminal(
        [*place, "put", PROMPT, "Paris"],
        [*place, "check", PROMPT],
        [*place, "check", "anything else"],
        [*place, "stats"],
        [*place, "invalidate", "--prompt", PROMPT],
        [*place, "clear", "--yes"],
    ).out

    for words in ("kept as", "Paris", "the same prompt", "no answer fits", "50.0% of 2 checks", "1 answer forgotten"):
        assert words in screen


def test_a_threshold_is_advised(shell: Shell, labelled: Path) -> None:
    """docs/cache.md: `sharedmem cache calibrate` tells the setting."""
    done = shell("cache", "calibrate", str(labelled), "--max-false-hits", "0.05")

    told = done.data
    assert (told["embedder"], told["same"], told["different"], told["bad_lines"]) == ("hashing:64", 20, 20, [1, 42])
    assert told["advice"]["different_hit"] <= 0.05
    assert told["setting"] == f"SHAREDMEM_CACHE_SIMILARITY={told['advice']['threshold']:g}"
    assert told["curve"][0]["threshold"] == 1.0
    assert "2 lines hold no pair: 1, 42" in done.err


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
