"""Fetches a dataset from the hub, or from a path on this server, into a version's folder as one source file.

    python -m controlplane.datasets.fetching FOLDER hub|path < arguments.json > answer.json

A separate process like the reader: limits, no database, and of the environment only what the hub needs. `starting` is
the worker's side.
"""
