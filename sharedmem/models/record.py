"""What every record is."""

from __future__ import annotations

from pydantic import BaseModel, ConfigDict


class Record(BaseModel):
    """A frozen answer; unknown fields are refused."""

    model_config = ConfigDict(frozen=True, extra="forbid")
