"""`sharedmem conversation`: ordered logs from the shell, as programs read them and as people see them."""

from __future__ import annotations

from support.shell import Shell, several_on_a_terminal

CALLED = ("conversation", "append", "ticket-7")


def test_a_log_is_appended_to_and_read(shell: Shell) -> None:
    change = shell(*CALLED, "The lamp is broken.", '{"by": "ada"}', "--entry-id", "m1", "--entry-id", "m2").data
    again = shell(*CALLED, "The lamp is broken.", "--entry-id", "m1").data

    assert (change["length"], change["added"], again["added"]) == (2, 2, 0)
    page = shell("conversation", "ticket-7").data
    assert [(one["id"], one["value"]) for one in page["entries"]] == [
        ("m1", "The lamp is broken."),
        ("m2", {"by": "ada"}),
    ]
    assert page["revision"] == change["revision"]
    assert [one["id"] for one in shell("conversation", "entries", "ticket-7", "--last", "1").data["entries"]] == ["m2"]
    assert [one["id"] for one in shell("conversation", "entries", "ticket-7", "--after", "m1").data["entries"]] == [
        "m2"
    ]


def test_a_stale_revision_is_refused_and_nothing_is_written(shell: Shell) -> None:
    first = shell(*CALLED, "one").data
    shell(*CALLED, "two")

    refused = shell(*CALLED, "three", "--if-revision", str(first["revision"]))

    assert refused.code == 4
    assert "version" in refused.err
    assert shell("conversation", "get", "ticket-7").data["length"] == 2


def test_the_state_changes_with_the_log_and_alone(shell: Shell) -> None:
    shell(*CALLED, "one", "--state", "topic=lamp", "--state", "step=2")
    shell("conversation", "patch", "ticket-7", "step=3", "topic=")

    assert shell("conversation", "state", "ticket-7").data["fields"] == {"step": 3}


def test_a_field_without_a_value_is_refused(shell: Shell) -> None:
    refused = shell("conversation", "patch", "ticket-7", "topic")

    assert refused.code == 2
    assert "NAME=VALUE" in refused.err
    assert shell("conversation", "list").data["conversations"] == []


def test_a_log_is_cut_replaced_and_emptied(shell: Shell) -> None:
    shell(*CALLED, "one", "two", "three", "--entry-id", "a", "--entry-id", "b", "--entry-id", "c")

    assert [one["value"] for one in shell("conversation", "pop", "ticket-7").data["entries"]] == ["three"]
    assert shell("conversation", "replace", "ticket-7", "the rest", "--after", "a").data["length"] == 2
    assert [one["value"] for one in shell("conversation", "ticket-7").data["entries"]] == ["one", "the rest"]
    assert shell("conversation", "clear", "ticket-7").data["length"] == 0
    assert shell("conversation", "get", "ticket-7").data["length"] == 0


def test_conversations_are_listed_by_their_tags_with_their_forks(shell: Shell) -> None:
    shell(*CALLED, "one", "--user", "u1")
    shell("conversation", "append", "other", "one")
    shell("conversation", "fork", "ticket-7", "retry")

    mine = shell("conversation", "list", "--user", "u1").data["conversations"]

    assert [one["key"].rsplit(":", 1)[-1] for one in mine] == ["retry", "ticket-7"]
    assert len(shell("conversation").data["conversations"]) == 3
    assert mine[0]["parent"] == mine[1]["key"]


def test_conversations_of_a_user_are_erased(shell: Shell) -> None:
    shell(*CALLED, "one", "two", "--user", "u1")
    shell("conversation", "append", "other", "three", "--user", "u2")

    assert shell("conversation", "erase", "--user", "u1", "--dry-run").data == {"conversations": 1, "entries": 2}
    assert shell("conversation", "erase", "--user", "u1").data == {"conversations": 1, "entries": 2}
    assert [one["length"] for one in shell("conversation", "list").data["conversations"]] == [1]
    assert shell("conversation", "erase").code == 2


def test_a_conversation_expires_and_is_deleted(shell: Shell) -> None:
    shell(*CALLED, "one")

    assert shell("conversation", "expire", "ticket-7", "--ttl", "3600").data is True
    assert 0 < shell("conversation", "get", "ticket-7").data["ttl"] <= 3600
    assert shell("conversation", "stats", "ticket-7").data["bytes"] > 0
    assert shell("conversation", "delete", "ticket-7").data is True
    assert shell("conversation", "delete", "ticket-7").data is False
    assert shell("conversation", "get", "ticket-7").code == 3


def test_people_see_tables(shell: Shell) -> None:
    shell(*CALLED, "The lamp is broken.", "--entry-id", "m1", "--user", "u1")

    place = ["--data-dir", str(shell.data_dir), "--namespace", shell.namespace, "conversation"]
    screen = several_on_a_terminal(
        [*place, "list"], [*place, "ticket-7"], [*place, "get", "ticket-7"], [*place, "state", "ticket-7"]
    ).out
    listed, read, got, state, _ = screen.split(" left 0")

    assert "ticket-7" in listed
    assert "u1" in listed
    assert "The lamp is broken." in read
    assert "1 entry in all" in read
    assert "never" in got
    assert "nothing there" in state
