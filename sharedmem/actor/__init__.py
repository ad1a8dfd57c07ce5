"""Agents: what one of them decides, remembers and tells the others."""

from sharedmem.actor.context import AgentMemory, Context, DecisionLog
from sharedmem.actor.remembering import ActorContext, RemembersMixin

__all__ = ["ActorContext", "AgentMemory", "Context", "DecisionLog", "RemembersMixin"]
