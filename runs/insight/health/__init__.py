"""Health of runs: rules that assess a run from its spec and its metrics."""
