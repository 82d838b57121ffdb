"""The rollout gateway's names, kinds and metrics. Standard library only."""

from workers.contract.run.episodes import EpisodeSpec

KEY_DIGEST = "GRPO_GATEWAY_KEY_SHA256"
"""Environment variable that gives the trainer the SHA-256 of the key."""
AGENTS, ATROPOS = "agents", "atropos"
KINDS = (AGENTS, ATROPOS)
ENVIRONMENT = ".venv-atropos"
PYTHON = "GRPO_ATROPOS_PYTHON"
ATROPOSLIB = "atroposlib"
"""Name of Atropos' distribution, whose version a host announces among `packages`."""

REQUESTS, LATENCY_P95 = "gateway/requests", "gateway/latency_s/p95"
WAITING = "gateway/waiting_s"
"""Seconds of a step in which the trainer waited for agents."""
SESSIONS_OPEN = "gateway/sessions_open"
WAITS_S = "gateway/waits_s"
"""Seconds that the trainer has waited for its episodes so far; 0 while it doesn't wait."""
QUIET_S = "gateway/quiet_s"
"""Seconds of that wait, up to now, in which no program has worked on an episode."""
LIVE_METRICS = (SESSIONS_OPEN, WAITS_S, QUIET_S)
"""Metrics that are repeated while the trainer waits; the others are reported once per step."""
GONE = "gateway/gone"
"""Number of sessions of a step whose agent went away."""
BRANCHES_DROPPED = "gateway/branches_dropped"
"""Number of chains of requests that don't continue another one and are not trained on."""
STALENESS = "gateway/staleness"
"""Mean number of training steps between the policy that wrote the tokens and the one that is trained on them."""
UNKNOWN = "gateway/staleness_unknown"
"""Share of Atropos' tokens that didn't come from this run."""


def ports_of(episodes: EpisodeSpec | None) -> int:
    """Count the ports on which the trainer listens: one for the endpoint and, with Atropos, one for its run-api."""
    if episodes is None or episodes.gateway is None:
        return 0
    return 2 if episodes.gateway.kind == ATROPOS else 1
