"""docs/providers.md: what a service of embeddings is asked, at OpenAI, at Azure and elsewhere."""

from __future__ import annotations

import numpy as np
import pytest
from pydantic import SecretStr
from support import openai_fixtures as fixtures
from support.openai_fixtures import MODEL, SHORT, opened
from support.openai_server import KEY, OpenAIServer

from sharedmem.config import Settings
from sharedmem.errors import ConfigError
from sharedmem.providers.embedding import CachedEmbedder
from sharedmem.providers.http_client import EMBEDDING, EntraLogin, ModelEndpoint, open_endpoint
from sharedmem.runtime import Counters
from sharedmem.testing.clock import ManualClock

server = fixtures.server
settings, embedder = fixtures.settings, fixtures.embedder


# -- what is asked --------------------------------------------------------------------------------


async def test_a_batch_is_one_request_with_the_model_the_key_and_the_dimension(
    embedder: CachedEmbedder, server: OpenAIServer, counters: Counters
) -> None:
    vectors, tokens = await embedder.embed(["one", "two"])

    (request,) = server.requests
    assert request.path == "/v1/embeddings"
    assert request.headers["authorization"] == f"Bearer {KEY}"
    assert request.body == {
        "model": "text-embedding-3-small",
        "input": ["one", "two"],
        "encoding_format": "base64",
        "dimensions": SHORT,
    }
    assert vectors.shape == (2, SHORT)
    assert tokens == 20
    assert counters.read("embedding_tokens", model=f"{MODEL}@{SHORT}") == 20
    assert counters.read("embedding_requests", model=MODEL, outcome="ok") == 1


async def test_a_dimension_that_the_model_has_anyway_is_not_asked_for(
    settings: Settings, server: OpenAIServer, clock: ManualClock, counters: Counters
) -> None:
    embedder = opened(settings.replace(embedding_dimension=None), clock, counters)

    vectors, _ = await embedder.embed(["one"])
    await embedder.close()

    assert embedder.name == MODEL
    assert vectors.shape == (1, 1536)
    assert "dimensions" not in server.requests[0].body


@pytest.mark.parametrize(
    ("model", "chosen", "dimension"),
    [
        ("text-embedding-3-small", None, 1536),
        ("text-embedding-3-large", None, 3072),
        ("text-embedding-3-large", 256, 256),
        ("text-embedding-ada-002", None, 1536),
        ("nomic-embed-text", 768, 768),
    ],
)
def test_the_dimension_is_known_before_anybody_is_asked(
    model: str, chosen: int | None, dimension: int, clock: ManualClock, counters: Counters
) -> None:
    settings = Settings(embedder=f"openai:{model}", embedding_key=SecretStr(KEY), embedding_dimension=chosen)

    assert opened(settings, clock, counters).dimension == dimension


@pytest.mark.parametrize(
    ("model", "chosen", "problem"),
    [
        ("text-embedding-ada-002", 256, "vectors of 1536 numbers, not of 256"),
        ("text-embedding-3-small", 3072, "vectors of 1536 numbers, not of 3072"),
        ("nomic-embed-text", None, "not known how many numbers"),
    ],
)
def test_a_dimension_that_the_model_has_not_is_refused_at_once(
    model: str, chosen: int | None, problem: str, clock: ManualClock, counters: Counters
) -> None:
    settings = Settings(embedder=f"openai:{model}", embedding_key=SecretStr(KEY), embedding_dimension=chosen)

    with pytest.raises(ConfigError, match=f"embedding_dimension.*{problem}"):
        opened(settings, clock, counters)


async def test_many_texts_go_in_batches_a_few_at_a_time(
    settings: Settings, server: OpenAIServer, clock: ManualClock, counters: Counters
) -> None:
    chosen = settings.replace(embedding_batch=10, provider_concurrency=2)
    embedder = opened(chosen, clock, counters)
    texts = [f"text {number}" for number in range(95)]

    vectors, _ = await embedder.embed(texts)

    await embedder.close()
    assert [len(request.body["input"]) for request in server.requests].count(10) == 9
    assert sorted(server.texts) == sorted(texts)
    assert server.busiest <= 2
    alone, _ = await opened(chosen.replace(embedder="hashing"), clock, counters).embed(texts)
    assert np.allclose(vectors, alone, atol=1e-5)


async def test_a_long_text_goes_in_pieces_and_comes_back_as_one_vector(
    embedder: CachedEmbedder, server: OpenAIServer
) -> None:
    words = [f"w{number}" for number in range(1_200)]

    vectors, _ = await embedder.embed(["short", " ".join(words)])

    first, *pieces = server.texts
    assert first == "short"
    assert [len(piece.split()) for piece in pieces] == [500, 500, 300]
    assert pieces[0].split()[-50:] == pieces[1].split()[:50], "each begins with the end of the one before"
    rows, _ = await embedder.embed(pieces)
    mean = np.average(rows, axis=0, weights=[500, 500, 300])
    assert np.allclose(vectors[1], mean / np.linalg.norm(mean), atol=1e-5)


async def test_a_server_that_takes_no_key_gets_none(
    settings: Settings, server: OpenAIServer, clock: ManualClock, counters: Counters
) -> None:
    server.key = ""
    embedder = opened(settings.replace(embedding_key=None), clock, counters)

    await embedder.embed(["one"])
    await embedder.close()

    assert "authorization" not in server.requests[0].headers


# -- Azure ----------------------------------------------------------------------------------------


def azure(server: OpenAIServer, **chosen: object) -> Settings:
    settings = Settings(embedder="azure:text-embedding-3-small", embedding_dimension=SHORT)
    resource = server.url.removesuffix("/v1")
    return settings.replace(**{"embedding_url": resource, "embedding_key": SecretStr(KEY)} | chosen)


async def test_azure_is_asked_by_deployment_with_its_own_header(
    server: OpenAIServer, clock: ManualClock, counters: Counters
) -> None:
    embedder = opened(azure(server), clock, counters)

    await embedder.embed(["one"])
    await embedder.close()

    (request,) = server.requests
    assert embedder.name == f"azure:text-embedding-3-small@{SHORT}"
    assert request.path == "/openai/deployments/text-embedding-3-small/embeddings?api-version=2024-10-21"
    assert request.headers["api-key"] == KEY
    assert "authorization" not in request.headers


@pytest.mark.parametrize(
    ("ending", "path"),
    [
        ("?api-version=2025-01-01-preview", "openai/deployments/my%2Fown/embeddings?api-version=2025-01-01-preview"),
        ("/openai/v1", "openai/v1/embeddings"),
    ],
)
def test_the_url_of_azure_may_name_the_version_of_its_api(ending: str, path: str) -> None:
    settings = Settings(
        embedder="azure:my/own", embedding_url=f"https://x.openai.azure.com{ending}", embedding_key=SecretStr(KEY)
    )

    assert open_endpoint(settings, EMBEDDING).url == f"https://x.openai.azure.com/{path}"


class Login:
    """Replaces azure-identity's credential."""

    closed = False

    async def get_token(self, *scopes: str, **_: object) -> object:
        assert scopes == ("https://cognitiveservices.azure.com/.default",)
        return type("Token", (), {"token": KEY})

    async def close(self) -> None:
        self.closed = True


async def test_azure_without_a_key_goes_by_a_token_of_entra_id(server: OpenAIServer) -> None:
    login = Login()
    whole = open_endpoint(azure(server), EMBEDDING)
    endpoint = ModelEndpoint(
        whole.provider,
        whole.model,
        whole.url,
        EMBEDDING,
        settings=whole.settings,
        key=None,
        login=EntraLogin("embedding_key", login),  # type: ignore[arg-type]  # as much of it as is used
    )

    headers = await endpoint.headers()
    await endpoint.close()

    assert headers == {"Authorization": f"Bearer {KEY}"}
    assert login.closed
