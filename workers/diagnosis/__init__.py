"""Diagnosis of a failed run from its logs, exits and figures, with a catalogue of causes and one interpreter.

Uses the standard library only, and nothing else of the project: `python -m workers.diagnosis` works on any folder or
log. An entry of catalogue.toml has the patterns of a cause, the processes that write them, the cause and its fix in
words, and the settings to change in the New run form; the interpreter ranks the entries that match.
"""
