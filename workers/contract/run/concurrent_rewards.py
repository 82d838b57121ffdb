"""Concurrent rewards: judges and sandboxes score a group as soon as it is complete, not once the whole batch is.

The scores are the same; only the time differs. Off by default. Standard library only.
"""

from workers.contract.run.episodes import EpisodeSpec
from workers.contract.run.hardware import HardwareSpec, Rollout
from workers.contract.run.problem import Problem

FIELD = "rewards_beside"


def problem(hardware: HardwareSpec, episodes: EpisodeSpec | None) -> Problem | None:
    """Find out why no group of a run is complete before its batch is. The field is FIELD."""
    if episodes is not None:
        if episodes.gateway is None:
            return None
        sentence = "Programs drive the episodes, and a batch of theirs is given to the trainer as a whole."
        return Problem(FIELD, sentence, "Turn it off.")
    if hardware.rollout is Rollout.SERVER:
        return None
    where = "vLLM inside the trainer" if hardware.rollout is Rollout.COLOCATE else "transformers"
    sentence = f"This profile generates a batch as a whole, by {where}: no group is complete before the others."
    return Problem(FIELD, sentence, "Choose a profile with vLLM servers, or turn it off.")
