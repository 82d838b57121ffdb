"""Learnability checks: whether a model can learn from a dataset with these rewards, before a run is launched."""
