"""A run's gateway as its page shows it: the address for agents, the key, and what to start."""
