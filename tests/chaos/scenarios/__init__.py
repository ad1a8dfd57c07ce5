"""All scenarios, by name."""

from __future__ import annotations

from chaos.scenario import Scenario
from chaos.scenarios.barriers import Barriers
from chaos.scenarios.durable import DurableArguments, DurableCosmos, DurableRules
from chaos.scenarios.executions import Executions
from chaos.scenarios.limits import Limits
from chaos.scenarios.linearizable import Linearizable
from chaos.scenarios.once import Once
from chaos.scenarios.queues import Queues

SCENARIOS: dict[str, type[Scenario]] = {
    scenario.name: scenario
    for scenario in (
        *(Linearizable, Queues, Once, Executions, Barriers, Limits),
        *(DurableRules, DurableArguments, DurableCosmos),
    )
}
