"""The end of the demo: the work of each agent, the problems, and commands to look at the data."""

from __future__ import annotations

from grading import Grade
from pydantic import BaseModel, ConfigDict


class _Frozen(BaseModel):
    model_config = ConfigDict(frozen=True)


class AgentPart(_Frozen):
    """The work of one agent."""

    name: str
    documents: int
    changes: int
    refused_claims: int
    killed: bool


class Speed(_Frozen):
    """The speed of the store, measured after the agents have ended."""

    operations: int
    writes_per_s: float
    reads_per_s: float


class Summary(_Frozen):
    """The results of the demo."""

    documents: int
    lost: tuple[str, ...]
    """Documents that no agent finished."""
    twice: tuple[str, ...]
    """Documents that were finished more than once."""
    takeovers: tuple[tuple[str, str, str], ...]
    """Document, its former reader, and the one who took it over after the lease had expired."""
    agents: tuple[AgentPart, ...]
    statements: int
    changes: int
    seconds: float
    speed: Speed
    grade: Grade
    report: str
    server: str
    data: str

    @property
    def problems(self) -> tuple[str, ...]:
        """Return the problems, as sentences; empty if nothing is wrong."""
        return (
            *(f"document {name} was lost" for name in self.lost),
            *(f"document {name} was done twice" for name in self.twice),
            *(f"planted but not found: {what}" for what in self.grade.missed),
            *(() if any(agent.killed for agent in self.agents) else ("no researcher was caught in mid-document",)),
        )

    @property
    def ok(self) -> bool:
        """Whether there are no problems."""
        return not self.problems


def as_text(summary: Summary) -> str:
    """Return the summary as text."""
    return "\n".join(
        ["", *_who_did_what(summary), "", *_outcome(summary), "", *_numbers(summary), "", *_where_to_look(summary)]
    )


def _who_did_what(summary: Summary) -> list[str]:
    head = f"{'agent':<14} {'documents':>9} {'changes':>8} {'refused claims':>15}"
    rows = (
        f"{agent.name:<14} {agent.documents:>9} {agent.changes:>8} {agent.refused_claims:>15}"
        f"{'  killed with SIGKILL' if agent.killed else ''}"
        for agent in summary.agents
    )
    return [head, "-" * len(head), *rows]


def _outcome(summary: Summary) -> list[str]:
    grade = summary.grade
    lost, twice = len(summary.lost), len(summary.twice)
    takeovers = (
        f"  {document}: the lease of {before} ran out, {after} read it" for document, before, after in summary.takeovers
    )
    return [
        f"Documents: {summary.documents - lost} of {summary.documents} done, {lost} lost, {twice} done twice.",
        *takeovers,
        f"Contradictions: found {grade.contradictions} of {grade.contradictions_planted} planted.",
        f"Near duplicates: found {grade.duplicates} of {grade.duplicates_planted} planted.",
        f"False alarms: {len(grade.false_alarms)} (precision {grade.precision:.0%}).",
        *(f"PROBLEM: {problem}" for problem in summary.problems),
    ]


def _numbers(summary: Summary) -> list[str]:
    speed = summary.speed
    flat_out = f"{speed.writes_per_s:,.0f} writes/s, {speed.reads_per_s:,.0f} reads/s (over {speed.operations:,} each)"
    return [
        f"{summary.changes} changes in {summary.seconds:.1f} s (mostly thinking), {summary.statements} statements.",
        f"Flat out, 50 tasks of one process: {flat_out}.",
    ]


def _where_to_look(summary: Summary) -> list[str]:
    return [
        f"Report:  {summary.report}",
        f"Server:  {summary.server}",
        f"Data:    {summary.data}",
        "",
        "Look around (the data stay until the next demo):",
        "  sharedmem ls --tree -n newsroom",
        "  sharedmem get newsroom:claims:04-divers-report",
        "  sharedmem list newsroom:shared:chat",
        "  sharedmem hash newsroom:shared:completions",
        "  sharedmem usage -n newsroom",
        "  sharedmem watch -n newsroom     # in a second terminal, then: sharedmem demo",
        "  sharedmem redis-cli GET 'sm:{newsroom}:claims:04-divers-report'",
        "  sharedmem redis-cli XLEN 'sm:{newsroom}:$changes'",
    ]
