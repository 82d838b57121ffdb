"""The library of tools and environments: what a model may call or play in, each with its parameter schema.

Standard library only; anything else is imported inside the function. The control plane builds forms from the schemas,
and its playground opens the sessions that the trainer opens, so a trial matches the run.
"""
