"""The settings of synthesis: how conversations become notes, and when notes are put away."""

from __future__ import annotations

from typing import Annotated

from pydantic import BaseModel, Field, SecretStr

_Share = Annotated[float, Field(ge=0, le=1, allow_inf_nan=False)]


class SynthesisSettings(BaseModel):
    """What can be chosen of synthesis."""

    synthesis_max_messages: int = Field(30, ge=1, le=1000, description="Messages that one note is made of at most.")
    synthesis_recall_threshold: _Share | None = Field(
        None,
        description="Cosine similarity below which a query does not look at a note, unless it holds the query's words; "
        "without it the embedder's.",
    )
    synthesis_score_threshold: _Share | None = Field(
        None,
        description="Composite score below which a query does not answer a note, unless it holds the query's words; "
        "without it the embedder's.",
    )
    synthesis_results: int = Field(10, ge=1, le=1000, description="Notes that a query answers.")
    synthesis_link_threshold: _Share | None = Field(
        None,
        description="Composite score from which a note is held against older ones; without it the embedder's.",
    )
    synthesis_links: int = Field(4, ge=1, le=33, description="Older notes that a new one is held against at most.")
    synthesis_concurrency: int = Field(
        4, ge=0, le=1000, description="Tasks that one process works on at a time; 0 leaves them to other processes."
    )
    synthesis_attempts: int = Field(5, ge=1, le=100, description="How often a task is tried before it is given up.")
    synthesis_result_s: int = Field(
        604_800, ge=60, le=31_622_400, description="Seconds that the result of a task can be asked for."
    )
    synthesis_archive_after_days: int = Field(
        3650, ge=1, le=36_500, description="Days after which a note that nobody needs may be archived."
    )
    webhook_secret: SecretStr | None = Field(None, description="Key by which calls of webhooks are signed.")
    webhook_private: bool = Field(
        default=False, description="Whether webhooks may go to private and loopback addresses."
    )
