"""Settings of metrics, traces and logs."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Annotated, Literal

from pydantic import AfterValidator, BaseModel, BeforeValidator, Field

from sharedmem.config.provider_settings import PART


def _check_host(host: str) -> str:
    if not host or not host.isprintable() or any(sign in host for sign in " /[]@"):
        raise ValueError("it should be an address of this machine, such as 127.0.0.1, ::1 or 0.0.0.0")
    return host


def _check_collector(url: str) -> str:
    if not re.fullmatch(r"https?://[^\s@]+", url):
        raise ValueError("it should be a URL without a password, such as http://127.0.0.1:4318")
    return url


def _fold_case(value: object) -> object:
    """Return `INFO` as `info`."""
    return value.lower() if isinstance(value, str) else value


_Host = Annotated[str, AfterValidator(_check_host)]
_Collector = Annotated[str, AfterValidator(_check_collector)]
_Level = Annotated[Literal["debug", "info", "warning", "error"], BeforeValidator(_fold_case)]
_Format = Annotated[Literal["text", "json"], BeforeValidator(_fold_case)]


class ObservabilitySettings(BaseModel):
    """Settings of metrics, traces and logs."""

    model_config = PART

    metrics_port: int | None = Field(
        None,
        ge=0,
        le=65_535,
        description="Port on which a hub serves the metrics of its process (http://host:port/metrics); 0: a free one. "
        "Default: not served. Of the command line only `serve grpc` uses it.",
    )
    metrics_host: _Host = Field("127.0.0.1", description="Address for metrics_port; the metrics need no token.")
    otlp_endpoint: _Collector | None = Field(
        None,
        description="Collector of OpenTelemetry to which a hub sends the metrics of its process every 15 seconds, as "
        "OTLP over HTTP, such as http://127.0.0.1:4318. Default: not sent.",
    )
    trace_content: bool = Field(
        default=False,
        description="Whether spans of memory operations have the text of queries and memories, which then goes where "
        "the spans go. Default: ids and numbers only.",
    )
    trace_redis: bool = Field(
        default=False,
        description="Whether each call of Redis inside of a span is a span of its own (`db.*`), with the name of the "
        "command or script, never with keys or values.",
    )
    log_level: _Level | None = Field(
        None,
        description="Least level that commands and services log: debug, info, warning or error. Default: warning for "
        "services; other commands log only if this or log_file is set.",
    )
    log_format: _Format = Field("text", description="Form of a line in the log of commands and services: text or json.")
    log_file: Path | None = Field(
        None, description="File that commands and services append their log to; without it standard error."
    )
