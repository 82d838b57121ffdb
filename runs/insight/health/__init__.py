"""Health of runs: rules that assess a run by its spec and its metrics."""
