"""Checks of a dataset's own reference answers by a reward config, before anybody trains on them."""
