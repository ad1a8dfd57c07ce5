"""Archives carry objects of users' models: exported with the namespace, imported into another."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from aredis_om import Field, HashModel, JsonModel, VectorFieldOptions
from support.contexts import client_of

from sharedmem import Hub, SharedMemoryError, SharedMemoryStore, om
from sharedmem.archive.objects import object_commands
from sharedmem.models import DurableRecord

VECTOR = VectorFieldOptions.flat(
    type=VectorFieldOptions.TYPE.FLOAT32, dimension=2, distance_metric=VectorFieldOptions.DISTANCE_METRIC.COSINE
)


class Berth(JsonModel, index=True):
    name: str = Field(index=True)
    ships: list[str] = Field(default_factory=list, index=True)


class Buoy(HashModel, index=True):
    code: str = Field(primary_key=True)
    colour: str = Field(index=True)
    meaning: list[float] = Field(default_factory=list, vector_options=VECTOR)


async def test_an_archive_brings_objects_back(hub: Hub, store: SharedMemoryStore, tmp_path: Path) -> None:
    ada = hub.store(store.namespace, actor="ada")
    berths, buoys = om.bind(ada, Berth), om.bind(ada.shared, Buoy, ttl=600)
    berth = await berths(name="North", ships=["Ash", "Elm|Oak"]).save()
    buoy = await buoys(code="b1", colour="röd", meaning=[0.1, -2.5]).save()
    await ada.write("topic", "tides", ttl=600)
    file = tmp_path / "harbour.jsonl"

    exported = await hub.archive.export(store.namespace, file)
    await store.clear()
    imported = await hub.archive.import_(file)

    assert (exported.left_out.count, imported.left_out.count) == (0, 0)
    assert await berths.get(berth.pk) == berth
    assert (await buoys.get("b1")).meaning == pytest.approx(buoy.meaning)
    assert [one.pk for one in await berths.find(berths.ships == "Elm|Oak").all()] == [berth.pk]
    left = await client_of(hub).call("PTTL", buoy.key())
    assert isinstance(left, int)
    assert 0 < left <= 600_000
    await store.clear()


@pytest.mark.parametrize(
    ("codec", "body"),
    [("json", "{"), ("hash", "[]"), ("hash", '{"a": 1}'), ("hash", '[["a", "base64", "?"]]'), ("x", "[]")],
)
def test_a_document_that_is_not_an_object_is_refused(codec: str, body: str) -> None:
    head = DurableRecord(key="a:$om:b:C:d", type="object", kind="om", version=0, stamp=0, codec=codec, body=body)

    with pytest.raises(SharedMemoryError, match="not that of an object"):
        object_commands(head, b"place")


async def test_an_object_cannot_be_imported_beside_the_objects(
    hub: Hub, store: SharedMemoryStore, tmp_path: Path
) -> None:
    berths: Any = om.bind(store, Berth)
    await berths(name="North").save()
    file = tmp_path / "harbour.jsonl"
    await hub.archive.export(store.namespace, file)
    forged = tmp_path / "forged.jsonl"
    forged.write_text(file.read_text("utf-8").replace(":$om:shared:Berth:", ":shared:Berth:"), "utf-8")

    with pytest.raises(SharedMemoryError):
        await hub.archive.import_(forged)
