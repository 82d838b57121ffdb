"""Reading of uploaded data, in a child process with resource limits and without a database or secrets.

    python -m controlplane.catalogue.datasets.reader FOLDER VERB < arguments.json > answer.json

Only this package and `fetching` import pyarrow, tokenizers or jinja2. The modules that the web and the worker use
without a child, such as `files`, `columns.mapping` and `problems`, are plain Python.
"""
