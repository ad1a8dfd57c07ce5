"""All scenarios, by name."""

from __future__ import annotations

from chaos.scenario import Scenario
from chaos.scenarios.barriers import Barriers
from chaos.scenarios.disk import Disk
from chaos.scenarios.durable import DurableArguments, DurableCosmos, DurableRules
from chaos.scenarios.executions import Executions
from chaos.scenarios.failover import Failover
from chaos.scenarios.feed import Feed
from chaos.scenarios.graph import GraphFacts
from chaos.scenarios.latency import Latency
from chaos.scenarios.limits import Limits
from chaos.scenarios.linearizable import Linearizable
from chaos.scenarios.memory import Memory
from chaos.scenarios.namespaces import Namespaces
from chaos.scenarios.once import Once
from chaos.scenarios.queues import Queues
from chaos.scenarios.soak import Soak

SCENARIOS: dict[str, type[Scenario]] = {
    scenario.name: scenario
    for scenario in (
        *(Linearizable, Queues, Once, Executions, Barriers, Limits),
        *(DurableRules, DurableArguments, DurableCosmos),
        *(GraphFacts, Feed, Namespaces, Memory, Disk, Failover, Latency, Soak),
    )
}
