"""Reading of uploaded data: in a child process with limits, without a database or secrets.

    python -m controlplane.catalogue.datasets.reader FOLDER VERB < arguments.json > answer.json

pyarrow, tokenizers and jinja2 are imported here and nowhere else in the control plane. Parts that the web and the
worker use without a child (file names, the mapping, the kinds of problems) are plain Python: `files`, `mapping`,
`problems`.
"""
