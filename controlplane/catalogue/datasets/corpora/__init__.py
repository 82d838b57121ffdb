"""Corpora: documents made of a dataset's columns, which the search tool reads."""
