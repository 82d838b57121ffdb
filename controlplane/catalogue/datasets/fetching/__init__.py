"""Fetching of a dataset from the hub, this server or reasoning-gym into a version's folder, as one source file.

    python -m controlplane.catalogue.datasets.fetching FOLDER hub|path|tasks < arguments.json > answer.json

Like the reader, this is a separate process: it has resource limits, no database, and only the environment variables
that the hub needs. `starting` is the worker's side.
"""
