"""Jobs on a run's model: starting them, and their results."""
