"""What Google Cloud Storage answers `gcsfs`, as far as a store of blobs asks: objects with generations, in memory."""

from __future__ import annotations

import json
import re
from base64 import b64encode
from collections.abc import Iterator
from datetime import UTC, datetime
from hashlib import md5
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Lock, Thread
from typing import Any
from urllib.parse import parse_qs, unquote, urlsplit

import pytest

from sharedmem.clock import new_id

_OBJECTS = re.compile(r"/(upload|download)?/?storage/v1/b/([^/]+)/o(?:/(.+))?")
_PAGE = 3
"""Objects in a page of a list: so few that lists have several."""
_BOUNDARY = b"\n--==0=="


class _Objects:
    """The objects of all buckets, by (bucket, name)."""

    def __init__(self) -> None:
        self.lock = Lock()
        self.buckets: set[str] = set()
        self.refusal = 0
        """Status of every answer, unless it is 0."""
        self.bodies: dict[tuple[str, str], bytes] = {}
        self.details: dict[tuple[str, str], dict[str, str]] = {}
        self.uploads: dict[str, tuple[tuple[str, str], bytearray]] = {}
        self._generation = 1_700_000_000_000_000

    def put(self, place: tuple[str, str], body: bytes) -> dict[str, str]:
        self._generation += 1
        moment = datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ")
        self.bodies[place] = body
        self.details[place] = {
            "kind": "storage#object",
            "name": place[1],
            "bucket": place[0],
            "size": str(len(body)),
            "generation": str(self._generation),
            "md5Hash": b64encode(md5(body, usedforsecurity=False).digest()).decode(),
            "timeCreated": moment,
            "updated": moment,
        }
        return self.details[place]


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    objects: _Objects

    def do_GET(self) -> None:
        self._answer(*self._read())

    def do_POST(self) -> None:
        self._answer(*self._write(self._body()))

    def do_DELETE(self) -> None:
        self._answer(*self._delete())

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002  # the name of the base class
        """Stay silent."""

    def _body(self) -> bytes:
        return self.rfile.read(int(self.headers.get("content-length", "0")))

    def _asked(self) -> tuple[str, str, str, dict[str, str]]:
        """What is asked for: the kind of call, bucket, name of the object, query."""
        parts = urlsplit(self.path)
        found = _OBJECTS.fullmatch(parts.path)
        assert found is not None, self.path
        query = {name: values[0] for name, values in parse_qs(parts.query).items()}
        return found[1] or "", unquote(found[2]), unquote(found[3] or ""), query

    def _read(self) -> tuple[int, object]:
        kind, bucket, name, query = self._asked()
        with self.objects.lock:
            if bucket not in self.objects.buckets or (name and (bucket, name) not in self.objects.details):
                return 404, {"error": {"message": "Not Found"}}
            if name:
                return 200, self.objects.bodies[bucket, name] if kind else self.objects.details[bucket, name]
            prefix, after = query.get("prefix", ""), query.get("pageToken", "")
            names = sorted(name for place, name in self.objects.details if place == bucket and name > after)
            names = [name for name in names if name.startswith(prefix)]
            page = {"kind": "storage#objects", "items": [self.objects.details[bucket, one] for one in names[:_PAGE]]}
            return 200, page | ({"nextPageToken": names[_PAGE - 1]} if len(names) > _PAGE else {})

    def _write(self, body: bytes) -> tuple[int, object]:
        _, bucket, _, query = self._asked()
        with self.objects.lock:
            if bucket not in self.objects.buckets:
                return 404, {"error": {"message": "Not Found"}}
            if query["uploadType"] == "multipart":
                _, about, content, _ = body.split(b"--==0==", 3)
                name = json.loads(about.partition(b"\n\n")[2])["name"]
                return 200, self.objects.put((bucket, name), content.partition(b"\n\n")[2].removesuffix(b"\n"))
            if "upload_id" in query:
                return self._continue(query["upload_id"], body)
            upload = new_id()
            self.objects.uploads[upload] = (bucket, query["name"]), bytearray()
            host = self.headers["host"]
            where = f"http://{host}/upload/storage/v1/b/{bucket}/o?uploadType=resumable&upload_id={upload}"
            return 200, {"location": where}

    def _continue(self, upload: str, chunk: bytes) -> tuple[int, object]:
        place, received = self.objects.uploads[upload]
        received += chunk
        if len(received) < int(self.headers["content-range"].rpartition("/")[2]):
            return 308, {"range": f"bytes=0-{len(received) - 1}"}
        del self.objects.uploads[upload]
        return 200, self.objects.put(place, bytes(received))

    def _delete(self) -> tuple[int, object]:
        _, bucket, name, query = self._asked()
        with self.objects.lock:
            details = self.objects.details.get((bucket, name))
            if details is None:
                return 404, {"error": {"message": "Not Found"}}
            if query.get("ifGenerationMatch", details["generation"]) != details["generation"]:
                return 412, {"error": {"message": "conditionNotMet"}}
            del self.objects.details[bucket, name], self.objects.bodies[bucket, name]
            return 204, b""

    def _answer(self, status: int, content: Any) -> None:
        if self.objects.refusal:
            status, content = self.objects.refusal, {"error": {"code": self.objects.refusal, "message": "no"}}
        headers = [name for name in ("location", "range") if isinstance(content, dict) and name in content]
        body = content if isinstance(content, bytes) else json.dumps(content).encode()
        self.send_response(status)
        self.send_header("content-length", str(len(body)))
        self.send_header("content-type", "application/octet-stream" if body is content else "application/json")
        for name in headers:
            self.send_header(name, content[name])
        self.end_headers()
        self.wfile.write(body)


class GcsEmulator:
    """A running service."""

    def __init__(self) -> None:
        self.objects = _Objects()
        handler = type("Handler", (_Handler,), {"objects": self.objects})
        self._server = ThreadingHTTPServer(("127.0.0.1", 0), handler)
        self.url = f"http://127.0.0.1:{self._server.server_port}"
        self._thread = Thread(target=self._server.serve_forever, daemon=True)
        self._thread.start()

    def make_bucket(self) -> str:
        """Create a bucket; return its name."""
        name = f"bucket-{new_id()}"
        self.objects.buckets.add(name)
        return name

    def refuse(self, status: int) -> None:
        """Answer every request with this status; 0 answers as usual."""
        self.objects.refusal = status

    def stop(self) -> None:
        """Stop."""
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()


@pytest.fixture
def gcs(monkeypatch: pytest.MonkeyPatch) -> Iterator[GcsEmulator]:
    """A service, to which the environment leads as it would to Google Cloud Storage."""
    service = GcsEmulator()
    monkeypatch.setenv("STORAGE_EMULATOR_HOST", service.url)
    monkeypatch.setenv("NO_GCE_CHECK", "true")
    monkeypatch.setenv("GOOGLE_CLOUD_PROJECT", "tests")
    yield service
    service.stop()
