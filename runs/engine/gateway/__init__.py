"""The gateway of a run on its page: the address for agents, its key, and what to start."""
