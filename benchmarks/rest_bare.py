"""The other side of the benchmark of REST: Starlette with handlers that send one command each with redis-py.

It is served as `sharedmem serve rest` is: by uvicorn on one core, with the same event loop and the same HTTP parser.

python benchmarks/rest_bare.py unix:///path/of/redis.sock    prints its address, in a line of JSON
"""

from __future__ import annotations

import asyncio
import json
import socket
import sys

import uvicorn
from redis.asyncio import Redis
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

_JSON = "application/json"
_KEEP_ALIVE_S = 30


def app_of(url: str) -> Starlette:
    """Return an app with one GET and one SET. Values are JSON already, and are passed through: the least work."""
    client = Redis.from_url(url, protocol=2)

    async def read(request: Request) -> Response:
        return Response(await client.get(request.path_params["key"]), media_type=_JSON)

    async def write(request: Request) -> Response:
        await client.set(request.path_params["key"], await request.body())
        return Response(b"1", media_type=_JSON)

    return Starlette(routes=[Route("/values/{key}", read), Route("/values/{key}", write, methods=["PUT"])])


async def serve(url: str) -> None:
    """Serve until the process ends."""
    # The protocol must be given as TCP: otherwise asyncio leaves Nagle's algorithm on, and a response waits 40 ms.
    with socket.socket(socket.AF_INET, socket.SOCK_STREAM, socket.IPPROTO_TCP) as listening:
        listening.bind(("127.0.0.1", 0))
        listening.listen()
        config = uvicorn.Config(
            app_of(url),
            log_config=None,
            access_log=False,
            server_header=False,
            proxy_headers=False,
            ws="none",
            timeout_keep_alive=_KEEP_ALIVE_S,
        )
        print(json.dumps({"url": f"http://127.0.0.1:{listening.getsockname()[1]}"}), flush=True)
        await uvicorn.Server(config).serve(sockets=[listening])


if __name__ == "__main__":
    asyncio.run(serve(sys.argv[1]))
