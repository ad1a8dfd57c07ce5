"""`store.graph`: the facade of the knowledge graphs of a namespace, and its constructor."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime
from typing import Any

from sharedmem.graph.access import GraphAccess, IngestRules, Page
from sharedmem.graph.backends import open_backend
from sharedmem.graph.extraction.rule_extractor import open_ingest_rules
from sharedmem.graph.integrity import GraphIntegrity
from sharedmem.graph.merges import EntityMerges
from sharedmem.graph.names import require_rapidfuzz
from sharedmem.graph.protocol import Extractor, GraphBackend, GraphProgress, Mention, Statement
from sharedmem.graph.queries import GraphQueries
from sharedmem.graph.summaries import ConversationSummaries
from sharedmem.graph.writer import GraphWriter
from sharedmem.knowledge_context import KnowledgeContext
from sharedmem.models import Entity, EntityMerge, Episode, EpisodeResult, Fact, GraphCheck, RelationType, Unknown
from sharedmem.redis.scope import Scope
from sharedmem.runtime import measured


class Graph(GraphQueries):
    """The temporal knowledge graphs of one namespace, a graph for each group, with the rights of one actor.

    A group (`tenant:session`) is part of every call: no call reads or writes across groups or namespaces. The class
    implements `MemoryStore`, on any backend.
    """

    def __init__(self, context: KnowledgeContext, scope: Scope, backend: GraphBackend, rules: IngestRules) -> None:
        access = GraphAccess(context, scope)
        super().__init__(context, access, backend, rules)
        self._context = context
        self._scope = scope
        self._summaries = ConversationSummaries(context, scope, backend, rules)
        self._writer = GraphWriter(context, access, backend, rules, self._summaries)
        self._merges = EntityMerges(context, access, backend, rules)
        self._integrity = GraphIntegrity(context, access, backend, rules)

    @measured("graph.add_episode")
    async def add_episode(  # noqa: PLR0913  # each is a property of the episode
        self,
        content: str | Mapping[str, Any] | Episode,
        *,
        group_id: str | None = None,
        id: str = "",  # noqa: A002  # as in the specification
        occurred_at: datetime | None = None,
        recorded_at: datetime | None = None,
        source: str = "",
        session: str | None = None,
        user: str | None = None,
        metadata: Mapping[str, Any] | None = None,
        extract: bool = True,
    ) -> EpisodeResult:
        """Ingest an episode: its mentions and statements become part of the graph, in one atomic step.

        Facts that it contradicts are closed, never deleted. A repeated call with the same id and content changes
        nothing. At most four round trips without a language model, five if a new name resembles a known one; more only
        while other writers change the same entities.

        Args:
            content: the content, as text or data, or a whole `Episode`.
            group_id: group of the graph, `tenant:session`; optional with an `Episode` that has one.
            id: your id, for idempotence; generated when empty.
            occurred_at: when it happened, with a time zone; by default now.
            recorded_at: when the graph recorded it, to import old data; by default now.
            source: its kind or origin; `message` by default.
            session, user: its conversation, and its user.
            metadata: any data to store with it.
            extract: whether to extract entities and facts from it.

        Returns:
            Its mentions and statements, and the facts that it closed. If the extracting model cannot be reached, the
                episode is stored and found all the same, `episode.extraction` is `failed`, and `extract()` tries again.

        Raises:
            InvalidError: the content, id, group or a moment is invalid.
            ConflictError: the id exists with another content, or the group is being deleted.
            AccessDeniedError: this actor may not write the namespace's graphs.
            UnavailableError: the server cannot be reached.
        """
        fields: dict[str, object] = {
            "group_id": group_id,
            "id": id,
            "occurred_at": occurred_at,
            "recorded_at": recorded_at,
        }
        fields |= {"source": source, "session": session, "user": user, "metadata": metadata}
        return await self._writer.add_episode(content, fields, extract=extract)

    @measured("graph.add_episodes")
    async def add_episodes(self, episodes: Sequence[Episode], *, extract: bool = True) -> list[EpisodeResult]:
        """Ingest episodes as `add_episode` does, in their order, up to 32 of one group in one step.

        Args:
            episodes: any number, also of several groups.
            extract: whether to extract entities and facts from them.

        Raises:
            InvalidError: one of them is invalid; then nothing was written.
            ConflictError, AccessDeniedError, UnavailableError: as `add_episode`; the episodes before are in the graph.
        """
        return await self._writer.add_episodes(episodes, extract=extract)

    @measured("graph.extract")
    async def extract(self, episode_id: str, *, group_id: str) -> EpisodeResult:
        """Extract entities and facts of an episode whose extraction has failed or was never requested.

        Raises:
            NotFoundError: there is no such episode, or it was deleted meanwhile.
            InvalidError: its facts have been extracted already, or it was undone.
            UnavailableError, LimitedError, ConfigError: the model cannot be asked.
            AccessDeniedError, ConflictError: as `add_episode`.
        """
        return await self._writer.extract(group_id, episode_id)

    @measured("graph.add_entity")
    async def add_entity(  # each is a property of the entity
        self,
        name: str,
        *,
        group_id: str,
        type: str = "",  # noqa: A002  # as in add_relationship
        aliases: Sequence[str] = (),
        attributes: Mapping[str, Any] | None = None,
        summary: str = "",
        at: datetime | None = None,
    ) -> Entity:
        """Return an entity: found by its name, an alias or a very similar name, or created.

        Args:
            name: in the usual spelling.
            group_id: group of the graph.
            type: one word, such as `person`.
            aliases: further names that lead to it, up to 300; `add_alias` takes any number.
            attributes: JSON values by name; each is a fact with a history of its own.
            summary: a sentence about it.
            at: since when the attributes have these values; by default now.

        Returns:
            The entity with its current attributes.

        Raises:
            InvalidError: a name, an attribute or a moment is invalid.
            ConflictError, AccessDeniedError, UnavailableError: as `add_episode`.
        """
        mention = Mention(name, type.strip(), tuple(aliases), dict(attributes or {}), summary)
        return await self._writer.add_entity(group_id, mention, at)

    @measured("graph.add_relationship")
    async def add_relationship(  # each is a property of the relationship
        self,
        source: str,
        type: str,  # noqa: A002  # as in the specification
        target: str,
        *,
        group_id: str,
        valid_from: datetime | Unknown | None = None,
        valid_to: datetime | None = None,
        recorded_at: datetime | None = None,
        episode: str | None = None,
        fact: str | None = None,
    ) -> Fact:
        """Add a relationship between two entities; new entities are created.

        A functional relation (`lives_in`) closes the fact that it contradicts at `valid_from`. A repeated relationship
        is one fact with two episodes.

        Args:
            source, target: names, or ids of entities.
            type: type of the relation; reversed if it is declared as the inverse of another.
            group_id: group of the graph.
            valid_from: since when; by default the time of the episode; `"unknown"` for an unknown start.
            valid_to: until when, exclusive; None while it holds.
            recorded_at: when the graph recorded it; by default now.
            episode: id of the episode that states it; by default a new one.
            fact: as a sentence; by default made from the names.

        Returns:
            The fact as it is known now.

        Raises:
            InvalidError: a name, type or moment is invalid, it would end before it begins, or the episode was undone.
            NotFoundError: the episode was deleted meanwhile.
            ConflictError, AccessDeniedError, UnavailableError: as `add_episode`.
        """
        statement = Statement(source, type, target, valid_from=valid_from, valid_to=valid_to, text=(fact or "").strip())
        return await self._writer.add_relationship(group_id, statement, episode=episode, recorded_at=recorded_at)

    @measured("graph.invalidate")
    async def invalidate(
        self, fact_id: str, *, group_id: str, at: datetime | None = None, episode: str | None = None
    ) -> Fact:
        """Close a fact: it does not hold any more. Nothing is deleted, and `undo` of the episode opens it again.

        Args:
            fact_id: id of the fact.
            group_id: group of the graph.
            at: since when it does not hold; by default now.
            episode: id of the episode that states this; by default a new one.

        Returns:
            The fact as it is known now; unchanged if it had ended by then already. It stays open if an episode
                states that it holds from that very moment on: undo that episode.

        Raises:
            NotFoundError: there is no such fact.
            InvalidError: the fact began at that moment or later.
            ConflictError, AccessDeniedError, UnavailableError: as `add_episode`.
        """
        return await self._writer.invalidate(group_id, fact_id, at, episode)

    @measured("graph.undo")
    async def undo(self, episode_id: str, *, group_id: str) -> EpisodeResult:
        """Undo an episode: its facts are retracted, and exactly the facts that it had closed are open again.

        Earlier knowledge stays readable: with `known_at` before this call, the graph returns the same as before. A
        second undo of an episode changes nothing (`repeated`).

        Returns:
            The episode, and in `facts` the changed facts.

        Raises:
            NotFoundError: there is no such episode.
            AccessDeniedError, UnavailableError, ConflictError: as `add_episode`.
        """
        return await self._writer.undo(group_id, episode_id)

    @measured("graph.summarize")
    async def summarize(self, *, group_id: str, session: str | None = None) -> list[Episode]:
        """Make the summaries that are due: one for every N turns of a session, and for every N summaries of one level.

        This call is optional: summaries are made in the background when turns are added (setting
        `graph_summary_every`). The summarised episodes do not change; `retrieve` prefers summaries for the distant
        past.

        Args:
            group_id: group of the graph.
            session: the conversation; None for the turns without one.

        Returns:
            The new summaries, oldest first; none when none are due.

        Raises:
            InvalidError: the group is invalid, or summaries are disabled.
            UnavailableError, LimitedError, ConfigError: the server or the language model cannot be reached.
            AccessDeniedError: this actor may not write the namespace's graphs.
        """
        return await self._summaries.summarize(group_id, session)

    @measured("graph.merge")
    async def merge(
        self, source: str, into: str, *, group_id: str, reason: str = "", progress: GraphProgress | None = None
    ) -> EntityMerge:
        """Merge two entities into one: all facts of the first, present and future, become facts of the second.

        Its names lead to the second one at once, in one atomic step; then its facts move there, in steps of 100 lines
        of facts, each atomic. After an interruption, the same call continues, and so does the next merge or unmerge in
        the group (ADR 44). Nothing is lost: `unmerge` separates the two again. About ten round trips, and four for
        each step.

        Args:
            source: name or id of the entity to merge.
            into: name or id of the entity that stays; if it was merged itself, the entity that it leads to.
            group_id: group of the graph.
            reason: why, for the log.
            progress: called with (lines done, lines known so far).

        Returns:
            The merge; the earlier one if they were merged already.

        Raises:
            InvalidError: both are the same, or the second was merged into the first.
            NotFoundError: the group has no entity with that name or id.
            ConflictError: the first was merged into a third one, or other callers keep changing the same entities.
            AccessDeniedError: this actor may not write the namespace's graphs.
            UnavailableError: the server cannot be reached.
        """
        return await self._merges.merge(group_id, source, into, reason=reason, progress=progress)

    @measured("graph.unmerge")
    async def unmerge(self, entity: str, *, group_id: str, progress: GraphProgress | None = None) -> EntityMerge:
        """Undo a merge: the entity's names lead to itself again, and facts stated with them are its own again.

        Facts stated with names of the other entity stay there. As with `merge`, the same call continues after an
        interruption. About ten round trips, and four for each step of 100 lines of facts.

        Args:
            entity: name or id of the merged entity, merged by a call of `merge` or because of its name.
            group_id: group of the graph.
            progress: called with (lines done, lines known so far).

        Returns:
            The merge, with `undone_at`; the earlier one if it was undone already.

        Raises:
            InvalidError: the entity was not merged.
            NotFoundError: the group has no entity with that name or id.
            ConflictError: other callers keep changing the same entities.
            AccessDeniedError: this actor may not write the namespace's graphs.
            UnavailableError: the server cannot be reached.
        """
        return await self._merges.unmerge(group_id, entity, progress=progress)

    @measured("graph.aliases")
    async def aliases(self, entity: str, *, group_id: str, after: str = "", limit: int = 1000) -> Page[str]:
        """Return a page of all names that lead to an entity, including those of entities that were merged into it.

        Two round trips, and one for each of the entities whose names are on the page.

        Args:
            entity: its name or id.
            group_id: group of the graph.
            after: the `cursor` of the page before.
            limit: most names, up to 10,000.

        Returns:
            Names in their normalised form: lower case, without punctuation around them.

        Raises:
            InvalidError: the limit is invalid.
            NotFoundError: the group has no entity with that name or id.
            AccessDeniedError: this actor may not read the namespace's graphs.
            UnavailableError: the server cannot be reached.
        """
        return await self._merges.aliases(group_id, entity, after=after, limit=limit)

    @measured("graph.add_alias")
    async def add_alias(self, entity: str, alias: str | Sequence[str], *, group_id: str) -> Entity:
        """Add one or several names that lead to an entity. Five round trips, and two for every further 300 names.

        Args:
            entity: its name or id.
            alias: the other name in its usual spelling; or any number of them.
            group_id: group of the graph.

        Raises:
            InvalidError: a name is invalid.
            NotFoundError: the group has no entity with that name or id.
            ConflictError: the alias is the name of another entity; aliases before it in the list were added.
            AccessDeniedError: this actor may not write the namespace's graphs.
            UnavailableError: the server cannot be reached.
        """
        return await self._merges.add_alias(group_id, entity, alias)

    @measured("graph.delete_by_group")
    async def delete_by_group(self, group_id: str, *, progress: GraphProgress | None = None) -> int:
        """Delete everything of a group: its episodes, entities and facts are deleted for good. Several round trips.

        Args:
            group_id: group of the graph.
            progress: called with (records deleted, records in all).

        Returns:
            How many records were deleted; 0 if there were none.

        Raises:
            InvalidError: the group is invalid.
            AccessDeniedError: this actor may not write the namespace's graphs.
            UnavailableError: the server cannot be reached; call it again to continue.
        """
        return await self._writer.delete_group(group_id, progress)

    @measured("graph.check")
    async def check(self, *, group_id: str, repair: bool = False, progress: GraphProgress | None = None) -> GraphCheck:
        """Recompute every fact of a group from its claims, and report each difference.

        Also reports claims in the wrong lines, entities without a record, and index entries that are missing or belong
        to no record. Reads all episodes and facts of the group, 500 in a round trip, and holds its claims in memory.
        Other clients may write meanwhile: only what is wrong at one moment is reported. While a merge moves claims, and
        after an interrupted merge, claims that are not moved yet count as misplaced. A repair changes no episode's
        content; it writes in steps of about 100 lines of facts, each atomic and guarded like any other step.

        Use the same relations (`using`) as the processes that write to the group: facts depend on them.

        Args:
            group_id: group of the graph.
            repair: whether to write missing records and remove superfluous ones.
            progress: called with (episodes read, episodes known so far).

        Returns:
            What was read, and every problem; `is_clean` if none is left.

        Raises:
            InvalidError: the group is invalid.
            ConflictError: the group is being deleted, or other writers keep changing the same entities.
            AccessDeniedError: this actor may not read the namespace's graphs; to repair, may not write them.
            UnavailableError: the server cannot be reached; call it again to continue.
        """
        return await self._integrity.check(group_id, repair=repair, progress=progress)

    def using(
        self,
        *,
        relations: Iterable[RelationType] = (),
        extractor: Extractor | None = None,
        backend: GraphBackend | None = None,
    ) -> Graph:
        """Return the same graphs with an application's own relations, or another extractor of facts.

        All processes that write to a group should use the same relations: these decide which facts contradict each
        other.
        No round trip.

        Args:
            relations: relation types; these replace declared and built-in types of the same name.
            extractor: finds entities and facts; None for the current one.
            backend: stores the graphs, such as one that wraps `backend`; None for the current one.

        Raises:
            InvalidError: the relations contradict each other.
        """
        rules = IngestRules(self.rules.vocabulary.extended(relations), extractor or self.rules.extractor)
        return Graph(self._context, self._scope, backend or self.backend, rules)

    def __repr__(self) -> str:
        return f"<Graph of {self._scope.identity.namespace}, {self.backend.name}, {self.rules.extractor.name}>"


def open_graph(context: KnowledgeContext, scope: Scope) -> Graph:
    """Return the graphs of a namespace, with the rights of an actor. No round trip.

    Raises:
        ConfigError: the rules file cannot be read.
        UnsupportedError: the extra `graph`, or a requirement of the backend or rules, is not installed.
    """
    require_rapidfuzz()
    rules = context.shared(IngestRules, "", lambda: open_ingest_rules(context.settings, context.model))
    return Graph(context, scope, open_backend(context, scope), rules)
