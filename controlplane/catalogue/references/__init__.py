"""Checks of a dataset's reference answers by a reward config, before a run trains on them."""
