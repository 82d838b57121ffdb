"""The rollout gateway: a run's endpoint through which the user's programs drive its episodes."""
