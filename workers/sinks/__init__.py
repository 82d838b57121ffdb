"""Followers of a run's outbox that send its figures to the programs that teams already look at."""
