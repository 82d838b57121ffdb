"""Rules that assess a run's health from its spec and its numbers."""
