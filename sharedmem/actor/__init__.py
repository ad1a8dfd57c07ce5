"""Agents: what one of them decides, remembers and sends to the others."""

from sharedmem.actor.decision_context import AgentMemory, Context, DecisionLog
from sharedmem.actor.memory_mixin import ActorContext, RemembersMixin

__all__ = ["ActorContext", "AgentMemory", "Context", "DecisionLog", "RemembersMixin"]
