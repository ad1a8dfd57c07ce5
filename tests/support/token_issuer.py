"""An issuer of JWTs for tests: keys that can be exchanged, and a server that has the public ones."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import jwt
from cryptography.hazmat.primitives.asymmetric import ec
from jwt.algorithms import ECAlgorithm

ISSUER = "https://login.example.org/"
AUDIENCE = "https://memory.example.org/mcp"


class FakeIssuer:
    """Signs tokens by ES256.

    Args:
        kids: ids of its keys.
    """

    def __init__(self, *kids: str) -> None:
        self._private = {kid: ec.generate_private_key(ec.SECP256R1()) for kid in kids}
        self.public = list(kids)
        """Ids of the keys that its document has; tests change it."""
        self.is_down = False
        self.asked = 0
        """How often the document was asked for."""
        self.url = ""

    def document(self) -> bytes:
        """The public keys as JWKS."""
        keys = [ECAlgorithm.to_jwk(self._private[kid].public_key(), as_dict=True) | {"kid": kid} for kid in self.public]
        return json.dumps({"keys": keys}).encode()

    def claims(self, **changes: Any) -> dict[str, Any]:
        """Claims of a good token of Ada in `tides`; None leaves a claim out."""
        now = int(time.time())
        good = {"iss": ISSUER, "aud": AUDIENCE, "sub": "ada", "iat": now, "exp": now + 600, "scope": "tides:write"}
        return {name: value for name, value in (good | changes).items() if value is not None}

    def token(self, kid: str = "k1", **changes: Any) -> str:
        """A token, signed by one of the keys."""
        return jwt.encode(self.claims(**changes), self._private[kid], "ES256", {"kid": kid})

    @contextmanager
    def serving(self) -> Iterator[FakeIssuer]:
        """Serve the document at `url` inside of this block."""
        issuer = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                issuer.asked += 1
                body = b"" if issuer.is_down else issuer.document()
                self.send_response(503 if issuer.is_down else 200)
                self.send_header("content-length", str(len(body)))
                self.end_headers()
                self.wfile.write(body)

            def log_message(self, *_: object) -> None:
                pass

        server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{server.server_port}/keys"
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02})
        thread.start()
        try:
            yield self
        finally:
            server.shutdown()
            thread.join()
            server.server_close()
