"""Reading of uploaded data, in a child process with resource limits and without a database or secrets.

    python -m controlplane.catalogue.datasets.reader FOLDER VERB < arguments.json > answer.json

Only this package imports pyarrow, tokenizers and jinja2. The modules that the web and the worker use without a child
are plain Python: `files`, `columns.mapping`, `problems`.
"""
