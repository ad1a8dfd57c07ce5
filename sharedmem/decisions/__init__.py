"""The decision log: plans and executions of agents, so that no plan is saved or executed twice."""
