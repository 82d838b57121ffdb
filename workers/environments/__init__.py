"""Library of tools and environments that a model may call or play in, each with its parameter schema.

Standard library only; anything else is imported inside functions. The control plane builds forms from the schemas, and
its playground opens the same sessions as the trainer, so that a trial matches the run.
"""
