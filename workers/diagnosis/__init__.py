"""Diagnosis of a failed run from its logs, exit codes and metrics, with a catalogue of causes and one interpreter.

It uses only the standard library and nothing else of the project, so `python -m workers.diagnosis` works on any folder
or log. An entry of catalogue.toml has the patterns of a cause, the processes that write matching lines, a description
of the cause and its fix, and the settings to change in the New run form. The interpreter ranks the entries that match.
"""
