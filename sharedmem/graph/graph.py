"""`store.graph`: the facade of the knowledge graphs of a namespace, and how it is opened."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime
from typing import Any

from sharedmem.graph.access import GraphAccess, IngestRules, Page
from sharedmem.graph.backends import open_backend
from sharedmem.graph.extraction.protocol import Extractor, Mention, Statement
from sharedmem.graph.extraction.rules_file import open_ingest_rules
from sharedmem.graph.integrity import GraphIntegrity
from sharedmem.graph.merges import EntityMerges
from sharedmem.graph.protocol import GraphBackend, GraphProgress
from sharedmem.graph.queries import GraphQueries
from sharedmem.graph.resolution.names import require_rapidfuzz
from sharedmem.graph.summaries import ConversationSummaries
from sharedmem.graph.writer import GraphWriter
from sharedmem.knowledge_context import KnowledgeContext
from sharedmem.models import Entity, EntityMerge, Episode, EpisodeResult, Fact, GraphCheck, RelationType, Unknown
from sharedmem.redis.scope import Scope
from sharedmem.runtime import measured


class Graph(GraphQueries):
    """The temporal knowledge graphs of one namespace, a graph for each group, with the rights of one actor.

    A group (`tenant:session`) is part of every call: nothing can be asked or written across groups, nor across
    namespaces. It is a `MemoryStore`, on any backend.
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
    async def add_episode(  # noqa: PLR0913  # each is a fact of the episode
        self,
        content: str | Mapping[str, Any] | Episode,
        *,
        group_id: str | None = None,
        id: str = "",  # noqa: A002  # as the specification has it
        occurred_at: datetime | None = None,
        recorded_at: datetime | None = None,
        source: str = "",
        session: str | None = None,
        user: str | None = None,
        metadata: Mapping[str, Any] | None = None,
        extract: bool = True,
    ) -> EpisodeResult:
        """Take in an episode: what it mentions and says becomes part of the graph, all in one atomic step.

        Facts that it contradicts are closed, never deleted. Told again with the same id and content, nothing changes.
        At most four round trips without a language model, five when a new name resembles a known one; more only while
        others change the same entities.

        Args:
            content: what happened, as text or data, or a whole `Episode`.
            group_id: group of the graph, `tenant:session`; may be left out with an `Episode`, which says it.
            id: yours, for idempotence; made when empty.
            occurred_at: when it happened, with a time zone; now when not given.
            recorded_at: when the graph learned of it, to tell old news again; now when not given.
            source: what or who it comes from; `message` when not given.
            session, user: which conversation it belongs to, and whose it is.
            metadata: anything that is to be kept with it.
            extract: whether entities and facts are looked for in it.

        Returns:
            What it mentions and says, and what it closed. Where the model that extracts cannot be asked, the episode
            is kept and found all the same, `episode.extraction` is `failed`, and `extract()` tries again.

        Raises:
            InvalidError: the content, id, group or a moment is none.
            ConflictError: the id is there with another content, or the group is being deleted.
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
        """As `add_episode` for each, in their order, up to 32 of one group in one step.

        Args:
            episodes: any number, also of several groups.
            extract: whether entities and facts are looked for in them.

        Raises:
            InvalidError: one of them is none; nothing was written then.
            ConflictError, AccessDeniedError, UnavailableError: as `add_episode`; those before are in the graph.
        """
        return await self._writer.add_episodes(episodes, extract=extract)

    @measured("graph.extract")
    async def extract(self, episode_id: str, *, group_id: str) -> EpisodeResult:
        """Look again for entities and facts in an episode whose extraction has failed, or never was asked for.

        Raises:
            NotFoundError: there is no such episode, or it was deleted meanwhile.
            InvalidError: its facts have been extracted already, or it was undone.
            UnavailableError, LimitedError, ConfigError: the model cannot be asked.
            AccessDeniedError, ConflictError: as `add_episode`.
        """
        return await self._writer.extract(group_id, episode_id)

    @measured("graph.add_entity")
    async def add_entity(  # each is a fact of the entity
        self,
        name: str,
        *,
        group_id: str,
        type: str = "",  # noqa: A002  # as add_relationship has it
        aliases: Sequence[str] = (),
        attributes: Mapping[str, Any] | None = None,
        summary: str = "",
        at: datetime | None = None,
    ) -> Entity:
        """Return an entity: found by its name, an alias or a very similar name, or made.

        Args:
            name: as people write it.
            group_id: group of the graph.
            type: one word, such as `person`.
            aliases: further names that lead to it, up to 300; `add_alias` takes any number.
            attributes: values by name, as JSON has them; each is a fact with a history of its own.
            summary: what it is, in a sentence.
            at: since when the attributes have these values; now when not given.

        Returns:
            The entity with all that is known of it now.

        Raises:
            InvalidError: a name, an attribute or a moment is none.
            ConflictError, AccessDeniedError, UnavailableError: as `add_episode`.
        """
        mention = Mention(name, type.strip(), tuple(aliases), dict(attributes or {}), summary)
        return await self._writer.add_entity(group_id, mention, at)

    @measured("graph.add_relationship")
    async def add_relationship(  # each is a fact of the relationship
        self,
        source: str,
        type: str,  # noqa: A002  # as the specification has it
        target: str,
        *,
        group_id: str,
        valid_from: datetime | Unknown | None = None,
        valid_to: datetime | None = None,
        recorded_at: datetime | None = None,
        episode: str | None = None,
        fact: str | None = None,
    ) -> Fact:
        """Say that something holds between two entities, which are made where they are new.

        A relation that is functional (`lives_in`) closes the fact that it contradicts at `valid_from`. Said again, the
        fact is one fact with two episodes.

        Args:
            source, target: names, or ids of entities.
            type: of the relation; turned around where it is declared as the inverse of another.
            group_id: group of the graph.
            valid_from: since when; when it was said where nothing is given; `"unknown"` when nobody knows.
            valid_to: until when, exclusive; None while it holds.
            recorded_at: when the graph learned of it; now when not given.
            episode: id of the episode that says so; made where there is none.
            fact: as a sentence; made of the names when not given.

        Returns:
            The fact as it is known now.

        Raises:
            InvalidError: a name, a type or a moment is none, or it would end before it begins; the episode was undone.
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
            fact_id: which.
            group_id: group of the graph.
            at: since when it does not hold; now when not given.
            episode: id of the episode that says so; made where there is none.

        Returns:
            The fact as it is known now; as it was when it had ended by then already. It stays open where an episode
            says that it holds from that very moment on: undo that one.

        Raises:
            NotFoundError: there is no such fact.
            InvalidError: it had not begun by then.
            ConflictError, AccessDeniedError, UnavailableError: as `add_episode`.
        """
        return await self._writer.invalidate(group_id, fact_id, at, episode)

    @measured("graph.undo")
    async def undo(self, episode_id: str, *, group_id: str) -> EpisodeResult:
        """Take back all that an episode said: its facts go, and exactly what it had closed is open again.

        What was known before stays known: asked with `known_at` before this call, the graph answers as ever. An
        episode that was undone before stays as it is (`repeated`).

        Returns:
            The episode, and in `facts` what changed.

        Raises:
            NotFoundError: there is no such episode.
            AccessDeniedError, UnavailableError, ConflictError: as `add_episode`.
        """
        return await self._writer.undo(group_id, episode_id)

    @measured("graph.summarize")
    async def summarize(self, *, group_id: str, session: str | None = None) -> list[Episode]:
        """Make the summaries that are due: of each N turns of a session, and of each N summaries of one level.

        Nobody has to call this: it is done in the background when turns are added (setting `graph_summary_every`).
        What was summed up is not touched; `retrieve` prefers summaries for what is long ago.

        Args:
            group_id: group of the graph.
            session: which conversation; None for the turns that belong to none.

        Returns:
            The new summaries, oldest first; none when none are due.

        Raises:
            InvalidError: the group is invalid, or summaries are switched off.
            UnavailableError, LimitedError, ConfigError: the server or the language model cannot be asked.
            AccessDeniedError: this actor may not write the namespace's graphs.
        """
        return await self._summaries.summarize(group_id, session)

    @measured("graph.merge")
    async def merge(
        self, source: str, into: str, *, group_id: str, reason: str = "", progress: GraphProgress | None = None
    ) -> EntityMerge:
        """Say that two entities are one: all that is and will be said of the first holds of the second.

        Its names lead to the other one at once, in one atomic step; then its facts move there, in steps of 100 lines of
        facts, each atomic. When that was cut off, the same call goes on with it; make it before you merge or unmerge
        these entities otherwise. Nothing is lost: `unmerge` takes the two apart again. Five round trips, and about
        four for each step.

        Args:
            source: name or id of the entity that is the other one.
            into: name or id of the one that stays; what that was merged into itself counts.
            group_id: group of the graph.
            reason: why, for the log.
            progress: called with (lines done, lines known so far).

        Returns:
            The merge; the one of before when both were merged already.

        Raises:
            InvalidError: both are the same, or the second was merged into the first.
            NotFoundError: the group has no entity with that name or id.
            ConflictError: the first was merged into a third one, or others merge the same entities meanwhile.
            AccessDeniedError: this actor may not write the namespace's graphs.
            UnavailableError: the server cannot be reached.
        """
        return await self._merges.merge(group_id, source, into, reason=reason, progress=progress)

    @measured("graph.unmerge")
    async def unmerge(self, entity: str, *, group_id: str, progress: GraphProgress | None = None) -> EntityMerge:
        """Take a merge back: the entity's names lead to itself again, and what was said with them is said of it.

        What was said with the names of the other one stays there. As with `merge`, the same call goes on with what was
        cut off. Five round trips, and about four for each step of 100 lines of facts.

        Args:
            entity: name or id of the one that was merged, by a call of `merge` or because of its name.
            group_id: group of the graph.
            progress: called with (lines done, lines known so far).

        Returns:
            The merge, with `undone_at`; the one of before when it was taken back already.

        Raises:
            InvalidError: it was merged into nothing.
            NotFoundError: the group has no entity with that name or id.
            ConflictError: others merge the same entities meanwhile.
            AccessDeniedError: this actor may not write the namespace's graphs.
            UnavailableError: the server cannot be reached.
        """
        return await self._merges.unmerge(group_id, entity, progress=progress)

    @measured("graph.aliases")
    async def aliases(self, entity: str, *, group_id: str, after: str = "", limit: int = 1000) -> Page[str]:
        """Return a page of all names that lead to an entity, those of entities that were merged into it too.

        Two round trips, and one for each of the entities whose names are on the page.

        Args:
            entity: its name or id.
            group_id: group of the graph.
            after: the `cursor` of the page before.
            limit: names at most, up to 10,000.

        Returns:
            Names as they are compared: in small letters, without punctuation around them.

        Raises:
            InvalidError: the limit is invalid.
            NotFoundError: the group has no entity with that name or id.
            AccessDeniedError: this actor may not read the namespace's graphs.
            UnavailableError: the server cannot be reached.
        """
        return await self._merges.aliases(group_id, entity, after=after, limit=limit)

    @measured("graph.add_alias")
    async def add_alias(self, entity: str, alias: str | Sequence[str], *, group_id: str) -> Entity:
        """Another name that leads to an entity, or several. Five round trips, and two for each 300 names more.

        Args:
            entity: its name or id.
            alias: the other name, as people write it; or any number of them.
            group_id: group of the graph.

        Raises:
            InvalidError: it can be no name.
            NotFoundError: the group has no entity with that name or id.
            ConflictError: the alias is the name of another entity; of several, those before it lead here now.
            AccessDeniedError: this actor may not write the namespace's graphs.
            UnavailableError: the server cannot be reached.
        """
        return await self._merges.add_alias(group_id, entity, alias)

    @measured("graph.delete_by_group")
    async def delete_by_group(self, group_id: str, *, progress: GraphProgress | None = None) -> int:
        """Delete everything of a group. Its episodes, entities and facts are gone for good. Several round trips.

        Args:
            group_id: group of the graph.
            progress: called with (records deleted, records in all).

        Returns:
            How many records were deleted; 0 where there was nothing.

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
        Others may write meanwhile: only what is wrong at one moment is reported. While a merge moves claims, and after
        one that was cut off, what is not moved yet counts as misplaced. A repair changes no episode's content; it
        writes in steps of about 100 lines of facts, each atomic and guarded like any other step.

        Use the same relations (`using`) as the processes that tell the group something: facts depend on them.

        Args:
            group_id: group of the graph.
            repair: whether to write what should be there, and remove what should not.
            progress: called with (episodes read, episodes known so far).

        Returns:
            What was read, and every problem; `is_clean` when none is left.

        Raises:
            InvalidError: the group is invalid.
            ConflictError: the group is being deleted, or others change the same entities without end.
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
        """Return the same graphs, with an application's own relations, or another way to find facts in episodes.

        All processes that tell a group something should use the same relations: these decide what contradicts what.
        No round trip.

        Args:
            relations: how relations behave; these come before the declared and the shipped ones.
            extractor: finds entities and facts; None leaves it as it is.
            backend: keeps the graphs, such as one that observes `backend`; None leaves it as it is.

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
        ConfigError: the file with rules cannot be read.
        UnsupportedError: the extra `graph` is missing, or what the settings' backend or rules need.
    """
    require_rapidfuzz()
    rules = context.shared(IngestRules, "", lambda: open_ingest_rules(context.settings, context.model))
    return Graph(context, scope, open_backend(context, scope), rules)
