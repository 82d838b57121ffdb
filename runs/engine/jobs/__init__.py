"""Jobs on a run's models: their starts and their results."""
