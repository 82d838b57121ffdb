"""Permission for endpoints that other machines reach: such a host listens to the network, without encryption."""

from __future__ import annotations

from controlplane.platform.accounts.models import User
from workers.contract.run.episodes import EpisodeSpec

REFUSED = "Only an admin may open a run’s endpoint to other machines"


def may_open(user: User, episodes: EpisodeSpec | None) -> bool:
    """Whether the user may launch a run with these episodes."""
    return user.may_administer or not is_open(episodes)


def is_open(episodes: EpisodeSpec | None) -> bool:
    return episodes is not None and episodes.gateway is not None and episodes.gateway.open_beyond_loopback
