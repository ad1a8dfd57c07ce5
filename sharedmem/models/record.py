"""The base class of records."""

from __future__ import annotations

from pydantic import BaseModel, ConfigDict


class Record(BaseModel):
    """A frozen record; unknown fields are rejected."""

    model_config = ConfigDict(frozen=True, extra="forbid")
