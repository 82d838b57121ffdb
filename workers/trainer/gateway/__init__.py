"""The rollout gateway: a run's own endpoint, through which programs of the user's drive its episodes."""
