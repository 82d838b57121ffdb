"""Evaluations: a run's model and its checkpoints on the same held-out prompts, compared."""
