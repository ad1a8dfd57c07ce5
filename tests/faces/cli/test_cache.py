"""`sharedmem cache`: answers looked up, kept and forgotten, and the choice of a threshold."""

from __future__ import annotations

import pytest
from support.shell import Shell, several_on_a_terminal

PROMPT = "what is the capital of France?"

pytestmark = pytest.mark.usefixtures("hashing_embedder")


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
