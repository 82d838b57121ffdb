"""Why a run failed, from its logs, exits and figures: a catalogue of causes, and one interpreter for it.

Standard library only, and nothing else of the project: `python -m workers.diagnosis` works on a folder or a log that
somebody has sent. An entry of catalogue.toml names the patterns of a cause, where they are written, the cause and its
fix in words, and what to change in the New run form; the interpreter ranks the entries that match.
"""
