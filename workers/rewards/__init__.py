"""The reward library: pure functions from a completion to a number, each with its parameter schema.

Standard library only. The control plane draws forms from the schemas and previews with the same functions that the
trainer calls, so what a person tries is what a run does.
"""

from workers.rewards.library import LIBRARY
from workers.rewards.reward import Params, Reward

__all__ = ["LIBRARY", "Params", "Reward"]
