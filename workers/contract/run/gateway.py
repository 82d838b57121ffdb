"""The rollout gateway: what its two sides agree on. Standard library only."""

from __future__ import annotations

from workers.contract.run.episodes import EpisodeSpec

KEY_DIGEST = "GRPO_GATEWAY_KEY_SHA256"
"""The trainer's variable with the hash by which keys are checked."""
AGENTS, ATROPOS = "agents", "atropos"
KINDS = (AGENTS, ATROPOS)
ENVIRONMENT = ".venv-atropos"
PYTHON = "GRPO_ATROPOS_PYTHON"
ATROPOSLIB = "atroposlib"
"""The distribution; a host announces its version among `packages`."""

REQUESTS, LATENCY_P95 = "gateway/requests", "gateway/latency_s/p95"
WAITING = "gateway/waiting_s"
"""Of a step, the seconds in which the trainer waited for agents."""
SESSIONS_OPEN = "gateway/sessions_open"
WAITS = "gateway/waits_s"
"""For how many seconds the trainer has waited for its episodes by now; 0 while it doesn't wait."""
QUIET = "gateway/quiet_s"
"""For how many of these, up to now, no program has worked for it."""
LIVE = (SESSIONS_OPEN, WAITS, QUIET)
"""Told again and again while the trainer waits; the other figures are those of a step."""
GONE = "gateway/gone"
"""Sessions of a step whose agent went away."""
DROPPED = "gateway/branches_dropped"
"""Lines of requests that didn't go on from others, and are not trained on."""
STALENESS = "gateway/staleness"
"""Training steps between the policy that wrote the tokens and the one that is trained with them, on average."""
UNKNOWN = "gateway/staleness_unknown"
"""Share of Atropos' tokens that didn't come from this run."""


def ports_of(episodes: EpisodeSpec | None) -> int:
    """How many ports the trainer listens on for it: its endpoint's, and that of Atropos' run-api."""
    if episodes is None or episodes.gateway is None:
        return 0
    return 2 if episodes.gateway.kind == ATROPOS else 1
