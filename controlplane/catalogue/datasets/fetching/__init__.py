"""The fetch of a dataset from the hub, this server or reasoning-gym into a version's folder as one source file.

    python -m controlplane.catalogue.datasets.fetching FOLDER hub|path|tasks < arguments.json > answer.json

A separate process like the reader: limits, no database, and of the environment only what the hub needs. `starting` is
the worker's side.
"""
