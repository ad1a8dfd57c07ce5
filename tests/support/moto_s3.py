"""An S3 service for tests: moto in this process, on a port of its own."""

from __future__ import annotations

from collections.abc import Iterator

import boto3
import pytest
from moto.server import ThreadedMotoServer

from sharedmem.clock import new_id

KEY, SECRET = "AKIAEXAMPLE", "moto-secret-of-tests"


class MotoS3:
    """A running service.

    Args:
        url: its endpoint.
    """

    def __init__(self, url: str) -> None:
        self.url = url

    def make_bucket(self) -> str:
        """Create a bucket; return its name."""
        name = f"bucket-{new_id()}"
        client = boto3.client(
            "s3",
            endpoint_url=self.url,
            aws_access_key_id=KEY,
            aws_secret_access_key=SECRET,
            region_name="us-east-1",
        )
        client.create_bucket(Bucket=name)
        return name


@pytest.fixture(scope="session")
def moto_server() -> Iterator[str]:
    """The endpoint of a service that runs for the whole session."""
    server = ThreadedMotoServer(ip_address="127.0.0.1", port=0, verbose=False)
    server.start()
    host, port = server.get_host_and_port()
    yield f"http://{host}:{port}"
    server.stop()


@pytest.fixture
def moto_s3(moto_server: str, monkeypatch: pytest.MonkeyPatch) -> MotoS3:
    """A service, to which the environment leads as it would to S3."""
    environment = {
        "AWS_ACCESS_KEY_ID": KEY,
        "AWS_SECRET_ACCESS_KEY": SECRET,
        "AWS_DEFAULT_REGION": "us-east-1",
        "AWS_ENDPOINT_URL_S3": moto_server,
        "AWS_EC2_METADATA_DISABLED": "true",
    }
    for name, value in environment.items():
        monkeypatch.setenv(name, value)
    return MotoS3(moto_server)
