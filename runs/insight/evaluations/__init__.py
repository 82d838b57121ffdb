"""Evaluations: comparison of a run's starting model and checkpoints on the same held-out prompts."""
