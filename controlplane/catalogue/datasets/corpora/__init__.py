"""Corpora: documents from a dataset's columns or a text file, for the search tool."""
