"""Webhooks reach their receivers, signed and once, however these misbehave; and no address of the inside."""

from __future__ import annotations

import asyncio
import socket
import ssl
from collections.abc import AsyncIterator, Callable, Sequence
from dataclasses import replace
from typing import Any

import pytest
import trustme
from support.contexts import knowledge_of, scope_of
from support.waiting import wait_until
from support.webhook_receiver import Reaction, Receiver, running_receiver

from sharedmem import Hub, InvalidError, Settings
from sharedmem.clock import SystemClock
from sharedmem.models import SynthesisTask
from sharedmem.providers.local_embedders import HashingEmbedder
from sharedmem.providers.protocol import Embeddings, Purpose
from sharedmem.synthesis.webhook_signatures import verify_webhook
from sharedmem.synthesis.webhooks import ResolveHost, WebhookDelivery, Webhooks
from sharedmem.testing import fake_hub

SECRET = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"  # of the examples of the scheme
HOST = "receiver.test"


class HastyClock(SystemClock):
    """A clock that keeps its sleepers no longer than it must, and remembers for how long they wanted to sleep."""

    def __init__(self) -> None:
        self.slept: list[float] = []

    async def sleep(self, seconds: float) -> None:
        self.slept.append(seconds)
        await asyncio.sleep(0)


def leads_to(*addresses: str) -> ResolveHost:
    """A resolver that knows all hosts at these addresses."""

    async def resolve(_host: str, _port: int) -> Sequence[str]:
        return addresses

    return resolve


@pytest.fixture
async def hub() -> AsyncIterator[Hub]:
    async with fake_hub(settings=Settings(webhook_secret=SECRET, webhook_private=True)) as hub:
        yield hub


@pytest.fixture
def clock() -> HastyClock:
    return HastyClock()


Open = Callable[..., Webhooks]


@pytest.fixture
def opened(hub: Hub, clock: HastyClock) -> Open:
    """Opens the webhooks of a namespace, with some settings and parts of its own."""

    def webhooks(*, private: bool = True, timeout_s: float = 5.0, **parts: Any) -> Webhooks:
        store = hub.store("shop")
        context = knowledge_of(store)
        context = replace(context, clock=clock, settings=context.settings.replace(webhook_private=private))
        return Webhooks(context, scope_of(store), timeout_s=timeout_s, **parts)

    return webhooks


@pytest.fixture
async def receiver() -> AsyncIterator[Receiver]:
    async with running_receiver() as receiver:
        yield receiver


async def told(webhooks: Webhooks, receiver: Receiver, **payload: object) -> WebhookDelivery:
    """How a call about one task goes, from the announcement on."""
    await webhooks.announce("0000000000000001", f"http://{HOST}:{receiver.port}/hook?shop=1", payload)
    delivery = await webhooks.work_once()
    assert delivery is not None
    return delivery


# -- what a receiver gets -------------------------------------------------------------------------


async def test_a_receiver_is_told_the_result_and_can_tell_who_told_it(opened: Open, receiver: Receiver) -> None:
    webhooks = opened(resolve=leads_to("127.0.0.1"))

    delivery = await told(webhooks, receiver, status="done", result={"memory_id": "note-1"})

    assert delivery == WebhookDelivery(outcome="delivered", attempts=1, status=200)
    (call,) = receiver.calls
    assert call.path == "/hook?shop=1"
    assert call.headers["host"] == f"{HOST}:{receiver.port}"
    assert call.event == {
        "id": call.headers["webhook-id"],
        "task_id": "0000000000000001",
        "status": "done",
        "result": {"memory_id": "note-1"},
        "timestamp": call.event["timestamp"],
    }
    assert verify_webhook(SECRET, call.headers, call.body)


async def test_a_receiver_is_told_what_went_wrong(opened: Open, receiver: Receiver) -> None:
    await told(opened(resolve=leads_to("127.0.0.1")), receiver, status="failed", error="the model gave up")

    (call,) = receiver.calls
    assert (call.event["status"], call.event["error"]) == ("failed", "the model gave up")
    assert "result" not in call.event


async def test_what_is_announced_twice_is_told_once(opened: Open, receiver: Receiver) -> None:
    webhooks = opened(resolve=leads_to("127.0.0.1"))
    url = f"http://{HOST}:{receiver.port}/"

    first = await webhooks.announce("1", url, {"status": "done"})
    again = await webhooks.announce("1", url, {"status": "done"})
    await webhooks.work_once()
    late = await webhooks.announce("1", url, {"status": "done"})

    assert first == again == late
    assert await webhooks.work_once() is None
    assert len(receiver.calls) == 1


async def test_a_result_too_large_for_the_queue_is_to_be_asked_for(opened: Open, receiver: Receiver) -> None:
    delivery = await told(opened(resolve=leads_to("127.0.0.1")), receiver, status="done", result="x" * 400_000)

    assert delivery.is_delivered
    assert receiver.calls[0].event["result"]["is_left_out"] is True


async def test_without_a_secret_nothing_is_signed(receiver: Receiver, clock: HastyClock) -> None:
    async with fake_hub(settings=Settings(webhook_private=True)) as hub:
        store = hub.store("shop")
        webhooks = Webhooks(knowledge_of(store), scope_of(store), resolve=leads_to("127.0.0.1"))
        await told(webhooks, receiver, status="done")

    assert "x-sharedmem-signature" not in receiver.calls[0].headers


# -- receivers that misbehave -----------------------------------------------------------------------


@pytest.mark.parametrize(
    "once",
    [
        Reaction(429),
        Reaction(503),
        Reaction(504),
        Reaction(closes=True),
        pytest.param(Reaction(hangs=True), id="never answers"),
        pytest.param(Reaction(drips=True), id="never ends its headers"),
    ],
)
async def test_what_passes_is_tried_again(opened: Open, receiver: Receiver, clock: HastyClock, once: Reaction) -> None:
    receiver.will(once)

    delivery = await told(opened(resolve=leads_to("127.0.0.1"), timeout_s=1), receiver, status="done")

    assert delivery == WebhookDelivery(outcome="delivered", attempts=2, status=200)
    first, second = receiver.calls
    assert first.body == second.body
    assert first.headers["webhook-id"] == second.headers["webhook-id"]


async def test_three_attempts_are_made_with_longer_and_longer_pauses(
    opened: Open, receiver: Receiver, clock: HastyClock
) -> None:
    receiver.will(*[Reaction(503)] * 4)
    webhooks = opened(resolve=leads_to("127.0.0.1"))

    delivery = await told(webhooks, receiver, status="done")

    assert delivery == WebhookDelivery(
        outcome="exhausted", attempts=3, status=503, error=f"{HOST} responds with HTTP 503"
    )
    assert (len(receiver.calls), clock.slept) == (3, [1.0, 2.0])


@pytest.mark.parametrize("status", [301, 302, 307, 308, 400, 401, 404, 410, 500, 501, 502, 505])
async def test_what_would_be_refused_again_is_not_tried_again(
    opened: Open, receiver: Receiver, clock: HastyClock, status: int
) -> None:
    receiver.will(Reaction(status, {"Location": f"http://127.0.0.1:{receiver.port}/elsewhere"}))

    delivery = await told(opened(resolve=leads_to("127.0.0.1")), receiver, status="done")

    assert (delivery.outcome, delivery.attempts, delivery.status) == ("refused", 1, status)
    assert (len(receiver.calls), clock.slept) == (1, [])


async def test_a_huge_answer_is_not_read(opened: Open, receiver: Receiver) -> None:
    receiver.will(Reaction(body=b"x" * 30_000_000))

    delivery = await told(opened(resolve=leads_to("127.0.0.1")), receiver, status="done")

    assert delivery.is_delivered


async def test_a_refused_call_is_a_dead_letter_and_can_be_made_again(opened: Open, receiver: Receiver) -> None:
    receiver.will(Reaction(404))
    webhooks = opened(resolve=leads_to("127.0.0.1"))
    await told(webhooks, receiver, status="done")

    (letter,) = await webhooks.queue.dead()
    await webhooks.queue.redrive(letter.id)
    again = await webhooks.work_once()

    assert letter.error == f"{HOST} responds with HTTP 404"
    assert again is not None
    assert again.is_delivered


async def test_a_call_that_was_cut_off_is_made_again(opened: Open, receiver: Receiver) -> None:
    receiver.will(Reaction(hangs=True))
    webhooks = opened(resolve=leads_to("127.0.0.1"))
    await webhooks.announce("1", f"http://{HOST}:{receiver.port}/", {"status": "done"})
    working = asyncio.create_task(webhooks.work(concurrency=1))
    await wait_until(lambda: bool(receiver.calls), description="the receiver is called")

    working.cancel()
    await asyncio.gather(working, return_exceptions=True)
    delivery = await webhooks.work_once()

    assert delivery is not None
    assert delivery.is_delivered


async def test_a_slow_receiver_does_not_delay_others(opened: Open, receiver: Receiver) -> None:
    receiver.will(Reaction(hangs=True))
    webhooks = opened(resolve=leads_to("127.0.0.1"))
    for number in range(5):
        await webhooks.announce(str(number), f"http://{HOST}:{receiver.port}/", {"status": "done"})

    working = asyncio.create_task(webhooks.work(concurrency=2))
    await wait_until(lambda: len(receiver.calls) == 5, description="all are called")
    working.cancel()
    await asyncio.gather(working, return_exceptions=True)

    assert len({call.event["id"] for call in receiver.calls}) == 5


async def test_a_call_that_another_worker_has_taken_over_stops_no_worker(opened: Open, receiver: Receiver) -> None:
    webhooks = opened(resolve=leads_to("127.0.0.1"))

    class Thief:
        async def steal(self, _host: str, _port: int) -> Sequence[str]:
            for task in await webhooks.queue.peek(state="claimed"):
                await webhooks.queue.delete(task.id)
            return ["127.0.0.1"]

    robbed = opened(resolve=Thief().steal)
    await webhooks.announce("1", f"http://{HOST}:{receiver.port}/", {"status": "done"})
    working = asyncio.create_task(robbed.work(concurrency=1))
    await wait_until(lambda: len(receiver.calls) == 1, description="the first call is made")
    await webhooks.announce("2", f"http://{HOST}:{receiver.port}/", {"status": "done"})
    await wait_until(lambda: len(receiver.calls) == 2, description="the second call is made")

    assert not working.done()
    working.cancel()
    await asyncio.gather(working, return_exceptions=True)


async def test_a_foreign_entry_of_the_queue_does_no_harm(opened: Open) -> None:
    webhooks = opened()
    await webhooks.queue.put({"rm": "-rf"})

    delivery = await webhooks.work_once()

    assert delivery == WebhookDelivery(outcome="refused", attempts=0, error="the task in the queue is not a webhook")


# -- tasks of synthesis -----------------------------------------------------------------------------------


class Broken(HashingEmbedder):
    """An embedder that fails with an unexpected error."""

    async def embed(self, texts: Sequence[str], *, purpose: Purpose = "document") -> Embeddings:  # noqa: ARG002
        raise RuntimeError("a bug")


async def test_the_receiver_gets_the_result_of_a_memory_and_of_a_summary(hub: Hub, receiver: Receiver) -> None:
    synthesis, url = hub.store("shop").synthesis, f"http://127.0.0.1:{receiver.port}/"
    asked: dict[str, Any] = {"app_id": "shop", "user_id": "mara", "callback_url": url}

    noted = await synthesis.add_memory(**asked, messages=[{"role": "user", "content": "I moved to Malmö."}])
    summed = await synthesis.summarize_conversation(**asked, messages="She moved to Malmö.")
    await wait_until(lambda: len(receiver.calls) == 2, description="both are told")

    assert isinstance(summed, SynthesisTask)
    results = {call.event["task_id"]: call.event["result"] for call in receiver.calls}
    assert results[noted.task_id]["memory_id"] == f"note-{noted.task_id}"
    assert "Malmö" in results[summed.task_id]["summary"]["summary"]
    assert all(verify_webhook(SECRET, call.headers, call.body) for call in receiver.calls)


async def test_the_receiver_gets_the_failure(receiver: Receiver) -> None:
    settings = Settings(webhook_private=True, synthesis_attempts=1)
    async with fake_hub(settings=settings, embedder=Broken()) as hub:
        await hub.store("shop").synthesis.add_memory(
            app_id="shop",
            user_id="mara",
            messages=[{"role": "user", "content": "I moved to Malmö."}],
            callback_url=f"http://127.0.0.1:{receiver.port}/",
        )
        await wait_until(lambda: len(receiver.calls) == 1, description="it is told")

    (call,) = receiver.calls
    assert (call.event["status"], call.event["error"]) == ("failed", "RuntimeError: a bug")


async def test_a_task_with_a_url_on_the_inside_is_not_accepted() -> None:
    async with fake_hub() as hub:
        with pytest.raises(InvalidError, match="webhook_private"):
            await hub.store("shop").synthesis.add_memory(
                app_id="shop",
                user_id="mara",
                messages=[{"role": "user", "content": "I moved."}],
                callback_url="http://169.254.169.254/latest/meta-data",
            )


# -- where they may go --------------------------------------------------------------------------------


async def test_a_host_with_one_address_on_the_inside_is_refused_before_anything_is_done(opened: Open) -> None:
    webhooks = opened(private=False, resolve=leads_to("93.184.216.34", "10.0.0.1"))

    with pytest.raises(InvalidError, match=r"10\.0\.0\.1.*webhook_private"):
        await webhooks.check(f"https://{HOST}/")


@pytest.mark.parametrize("host", ["127.0.0.1", "localhost", "[::1]"])
async def test_this_machine_is_refused_unless_it_is_allowed(opened: Open, host: str) -> None:
    with pytest.raises(InvalidError):
        await opened(private=False).check(f"http://{host}:6379/")
    await opened(private=True).check(f"http://{host}:6379/")


async def test_an_unknown_host_is_refused_and_one_that_cannot_be_resolved_just_now_is_not(opened: Open) -> None:
    def fails(code: int) -> ResolveHost:
        async def resolve(_host: str, _port: int) -> Sequence[str]:
            raise socket.gaierror(code, "as the system words it")

        return resolve

    with pytest.raises(InvalidError, match="this name cannot be resolved"):
        await opened(private=False, resolve=fails(socket.EAI_NONAME)).check(f"https://{HOST}/")
    await opened(private=False, resolve=fails(socket.EAI_AGAIN)).check(f"https://{HOST}/")


async def test_a_name_that_moves_to_the_inside_after_the_check_gets_nothing(opened: Open, receiver: Receiver) -> None:
    moving = iter([["93.184.216.34"], ["127.0.0.1"]])

    async def resolve(_host: str, _port: int) -> Sequence[str]:
        return next(moving)

    webhooks = opened(private=False, resolve=resolve)
    await webhooks.check(f"http://{HOST}:{receiver.port}/")
    delivery = await told(webhooks, receiver, status="done")

    assert delivery.outcome == "refused"
    assert receiver.connections == 0


async def test_a_name_is_looked_up_once_for_an_attempt(opened: Open, receiver: Receiver) -> None:
    """A second look-up could lead elsewhere than what was checked."""
    looks: list[str] = []

    async def resolve(host: str, _port: int) -> Sequence[str]:
        looks.append(host)
        return ["127.0.0.1"]

    delivery = await told(opened(resolve=resolve), receiver, status="done")

    assert delivery.is_delivered
    assert looks == [HOST]


async def test_the_next_address_is_tried_where_the_first_does_not_respond(opened: Open, receiver: Receiver) -> None:
    delivery = await told(opened(resolve=leads_to("127.9.9.9", "127.0.0.1")), receiver, status="done")

    assert (delivery.outcome, delivery.attempts) == ("delivered", 1)


async def test_no_proxy_of_the_environment_gets_between(
    opened: Open, receiver: Receiver, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with running_receiver() as proxy:
        monkeypatch.setenv("HTTP_PROXY", f"http://127.0.0.1:{proxy.port}")
        monkeypatch.setenv("ALL_PROXY", f"http://127.0.0.1:{proxy.port}")
        delivery = await told(opened(resolve=leads_to("127.0.0.1")), receiver, status="done")

    assert delivery.is_delivered
    assert proxy.connections == 0


# -- TLS --------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("certified", "outcome"), [(HOST, "delivered"), ("else.test", "exhausted")])
async def test_the_certificate_has_to_be_that_of_the_name(opened: Open, certified: str, outcome: str) -> None:
    authority = trustme.CA()
    serving, asking = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH), ssl.create_default_context()
    authority.issue_cert(certified).configure_cert(serving)
    authority.configure_trust(asking)
    async with running_receiver(serving) as receiver:
        webhooks = opened(resolve=leads_to("127.0.0.1"), tls=asking)
        await webhooks.announce("1", f"https://{HOST}:{receiver.port}/", {"status": "done"})
        delivery = await webhooks.work_once()

    assert delivery is not None
    assert delivery.outcome == outcome
    assert len(receiver.calls) == (outcome == "delivered")
