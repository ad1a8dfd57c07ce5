"""Where a gRPC server listens: to whom it is open, what is in its way, and how TLS protects it."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack
from pathlib import Path

import pytest
import trustme

from sharedmem import ConfigError, Hub, UnavailableError
from sharedmem.faces.grpc import GrpcAddress, MemoryClient, MemoryServer

Encrypted = Callable[..., Awaitable[MemoryServer]]


# -- where it listens -----------------------------------------------------------------------------


async def test_a_port_in_use_is_told(fake: Hub) -> None:
    async with MemoryServer(fake, GrpcAddress(port=0)) as server:
        with pytest.raises(ConfigError, match=r"'port' .* in use; choose another"):
            await MemoryServer(fake, server.endpoint).start()


@pytest.mark.parametrize(
    ("endpoint", "says"),
    [
        (GrpcAddress(host="0.0.0.0"), "other machines reach '0.0.0.0'"),
        (GrpcAddress(host="::"), "other machines reach '::'"),
        (GrpcAddress(host="example.org"), "other machines reach"),
        (GrpcAddress(port=70_000), "give 0 to 65535"),
        (GrpcAddress(max_message_bytes=1), "'max_message_bytes'"),
        (GrpcAddress(tls_cert_file=Path("c.pem")), "belong together"),
        (GrpcAddress(tls_client_ca_file=Path("c.pem")), "own certificate"),
    ],
)
def test_an_endpoint_that_lets_strangers_in_or_cannot_work_is_refused(endpoint: GrpcAddress, says: str) -> None:
    with pytest.raises(ConfigError, match=says):
        endpoint.check(has_tokens=False)


@pytest.mark.parametrize(
    ("endpoint", "has_tokens"),
    [
        (GrpcAddress(host="127.0.0.2"), False),
        (GrpcAddress(host="::1"), False),
        (GrpcAddress(host="localhost"), False),
        (GrpcAddress(host="0.0.0.0", trust_network=True), False),
        (GrpcAddress(host="0.0.0.0", tls_cert_file=Path("c"), tls_key_file=Path("k")), True),
    ],
)
def test_an_endpoint_that_is_safe_or_trusted_is_taken(endpoint: GrpcAddress, has_tokens: bool) -> None:
    endpoint.check(has_tokens=has_tokens)


def test_tokens_without_tls_are_not_enough_for_a_network() -> None:
    with pytest.raises(ConfigError, match="other machines"):
        GrpcAddress(host="0.0.0.0").check(has_tokens=True)


async def test_a_host_that_is_none_is_told(fake: Hub) -> None:
    with pytest.raises(ConfigError, match="cannot listen at"):
        await MemoryServer(fake, GrpcAddress(host="no.such.host.invalid", port=0, trust_network=True)).start()


# -- TLS ------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def papers(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """Certificates of an authority for a server and a client, and one of a stranger."""
    folder = tmp_path_factory.mktemp("tls")
    authority, stranger = trustme.CA(), trustme.CA()
    server, client = authority.issue_cert("127.0.0.1", "localhost"), authority.issue_cert("client")
    found = {name: folder / f"{name}.pem" for name in ("ca", "stranger", "cert", "key", "client_cert", "client_key")}
    authority.cert_pem.write_to_path(found["ca"])
    stranger.cert_pem.write_to_path(found["stranger"])
    server.cert_chain_pems[0].write_to_path(found["cert"])
    server.private_key_pem.write_to_path(found["key"])
    client.cert_chain_pems[0].write_to_path(found["client_cert"])
    client.private_key_pem.write_to_path(found["client_key"])
    return found


@pytest.fixture
async def encrypted(fake: Hub, papers: dict[str, Path]) -> AsyncIterator[Encrypted]:
    async with AsyncExitStack() as stack:

        async def opened(client_ca: Path | None = None) -> MemoryServer:
            endpoint = GrpcAddress(
                port=0, tls_cert_file=papers["cert"], tls_key_file=papers["key"], tls_client_ca_file=client_ca
            )
            return await stack.enter_async_context(MemoryServer(fake, endpoint))

        yield opened


async def test_tls_keeps_a_call_secret(encrypted: Encrypted, papers: dict[str, Path]) -> None:
    server = await encrypted()

    async with MemoryClient(server.target, tls_ca_file=papers["ca"]) as memory:
        assert await memory.decisions.sessions() == []


async def test_a_server_of_another_authority_is_not_believed(encrypted: Encrypted, papers: dict[str, Path]) -> None:
    server = await encrypted()

    async with MemoryClient(server.target, tls_ca_file=papers["stranger"]) as memory:
        with pytest.raises(UnavailableError, match="certificate"):
            await memory.decisions.save_plan("btc", "BTC", "BUY", 0.5, "")


async def test_a_client_without_tls_gets_no_answer_from_a_server_with_it(
    encrypted: Encrypted,
) -> None:
    server = await encrypted()

    async with MemoryClient(server.target) as memory:
        with pytest.raises(UnavailableError):
            await memory.decisions.save_plan("btc", "BTC", "BUY", 0.5, "")


async def test_clients_may_have_to_show_a_certificate_too(encrypted: Encrypted, papers: dict[str, Path]) -> None:
    server = await encrypted(papers["ca"])
    cert, key = papers["client_cert"], papers["client_key"]

    async with MemoryClient(server.target, tls_ca_file=papers["ca"]) as memory:
        with pytest.raises(UnavailableError):
            await memory.decisions.save_plan("btc", "BTC", "BUY", 0.5, "")
    async with MemoryClient(server.target, tls_ca_file=papers["ca"], tls_cert_file=cert, tls_key_file=key) as memory:
        assert await memory.decisions.sessions() == []


@pytest.mark.parametrize(
    ("cert", "key", "says"),
    [
        ("cert", "client_key", "'tls_key_file' .* of no use with"),
        ("cert", "nowhere", "cannot be read"),
        ("ca", "cert", "'tls_key_file'"),
        ("text", "key", "holds no PEM"),
    ],
)
async def test_papers_that_are_of_no_use_are_told(
    fake: Hub, papers: dict[str, Path], tmp_path: Path, cert: str, key: str, says: str
) -> None:
    (tmp_path / "text").write_text("no certificate")
    files = papers | {"nowhere": tmp_path / "nowhere", "text": tmp_path / "text"}

    with pytest.raises(ConfigError, match=says):
        await MemoryServer(fake, GrpcAddress(port=0, tls_cert_file=files[cert], tls_key_file=files[key])).start()
