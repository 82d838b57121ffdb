"""The reward library: functions from a completion to a number, each with its parameter schema.

Standard library only; anything else is imported inside the function. The control plane builds forms from the schemas
and previews with the functions that the trainer calls, so a trial matches the run.
"""
