"""Judge two executions: compare, evidence, policies, verdicts."""
