"""Jobs on a run's model: starting them, and what they have found or made."""
