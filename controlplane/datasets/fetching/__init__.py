"""Brings a dataset from the hub, or from a path of this server, into a version's folder as one source file.

    python -m controlplane.datasets.fetching FOLDER hub|path < arguments.json > answer.json

A process of its own, like the one that reads: limits, no database, and of the environment only what the hub needs.
`starting` is the worker's side of it.
"""
