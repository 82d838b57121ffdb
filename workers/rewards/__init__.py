"""The reward library: functions from a completion to a number, each with its parameter schema.

Standard library only; what a reward needs beyond it is imported inside the function. The control plane draws forms
from the schemas and previews with the same functions that the trainer calls, so what a person tries is what a run does.
"""

from workers.rewards.library import LIBRARY
from workers.rewards.reward import Completion, Cost, Failure, Params, Reward, RewardGroup, Scores
from workers.rewards.scoring import score
from workers.rewards.tools import Tools

__all__ = ["LIBRARY", "Completion", "Cost", "Failure", "Params", "Reward", "RewardGroup", "Scores", "Tools", "score"]
