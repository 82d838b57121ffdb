"""Episodes in the trainer: rollouts with several turns."""
