"""Everything that reads what people uploaded: in a child process with limits, without a database, without secrets.

    python -m controlplane.datasets.reader FOLDER VERB < arguments.json > answer.json

pyarrow, tokenizers and jinja2 are imported in here and nowhere else of the control plane. What the web and the worker
need of it without starting a child (the names of files, the mapping, the kinds of problems) is plain Python: `files`,
`mapping`, `problems`.
"""
