"""The reward library: functions that turn a completion into a number, each with a parameter schema.

Its modules import only the standard library; anything else is imported inside the function that needs it. The control
plane builds forms from the schemas and previews with the same functions as the trainer, so a trial matches the run.
"""
