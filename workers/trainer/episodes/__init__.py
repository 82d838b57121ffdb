"""Episodes in the trainer: rollouts of several turns."""
