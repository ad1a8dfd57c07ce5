"""The scripted model of the testing kit, and that a hub asks a model which is given as an object."""

from __future__ import annotations

from typing import Any

import pytest
from pydantic import BaseModel

from sharedmem import InvalidError, UnavailableError
from sharedmem.providers.protocol import ChatMessage
from sharedmem.testing import ScriptedModel, fake_hub

QUESTION = [ChatMessage(role="system", content="Be brief."), ChatMessage(role="user", content="What is it?")]


class Colour(BaseModel):
    name: str
    shade: float = 0.5


@pytest.mark.parametrize(
    "answer",
    [{"name": "blue"}, Colour(name="blue"), '{"name": "blue"}', lambda _: {"name": "blue"}],
    ids=["mapping", "record", "json", "function"],
)
async def test_an_answer_is_a_mapping_a_record_a_text_or_made_by_a_function(answer: Any) -> None:
    model = ScriptedModel({"Colour": answer})

    assert await model.complete(QUESTION, Colour) == Colour(name="blue")
    assert await model.complete(QUESTION, Colour) == Colour(name="blue")


async def test_a_list_is_used_up_one_by_one() -> None:
    model = ScriptedModel({"text": ["first", "second"]})

    assert [await model.write(QUESTION), await model.write(QUESTION)] == ["first", "second"]
    with pytest.raises(AssertionError, match="more often than its script has answers"):
        await model.write(QUESTION)


async def test_an_exception_of_the_script_is_raised() -> None:
    model = ScriptedModel({"text": UnavailableError("the model", "it is away")})

    with pytest.raises(UnavailableError, match="it is away"):
        await model.write(QUESTION)


async def test_what_the_script_lacks_fails_the_test_and_names_what_it_has() -> None:
    model = ScriptedModel({"text": "no"})

    with pytest.raises(AssertionError, match="asked for Colour; scripted is: text"):
        await model.complete(QUESTION, Colour)


async def test_an_answer_of_another_form_is_refused() -> None:
    model = ScriptedModel({"Colour": {"shade": 1.0}})

    with pytest.raises(InvalidError, match="does not have the form Colour"):
        await model.complete(QUESTION, Colour)


async def test_it_records_what_it_was_asked() -> None:
    model = ScriptedModel({"text": "a stone"})

    await model.write(QUESTION)

    (request,) = model.requests
    assert (request.form, request.content) == ("text", "What is it?")


async def test_a_model_given_as_an_object_decides_which_entity_a_name_means() -> None:
    model = ScriptedModel(
        {
            "ExtractionAnswer": {"entities": [{"name": "J. Smith", "type": "person"}]},
            "EntityChoices": {"choices": [{"name": 1, "entity": 1}]},
        }
    )
    async with fake_hub(model=model) as hub:
        graph = hub.store("team").graph
        jon = await graph.add_entity("Jon Smith", type="person", group_id="staff")

        await graph.add_episode("J. Smith called.", group_id="staff")

        assert [request.form for request in model.requests] == ["ExtractionAnswer", "EntityChoices"]
        assert (await graph.entity("J. Smith", group_id="staff")).id == jon.id
