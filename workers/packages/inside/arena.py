"""TextArena in a fork of the sandbox: a game is played again from its seed to the last move, so nothing is kept."""

from __future__ import annotations

import sys
import warnings
from collections.abc import Sequence
from typing import Any

warnings.simplefilter("ignore")

import textarena  # noqa: E402
from textarena.envs.registration import ENV_REGISTRY  # noqa: E402


class _Quiet:
    """Where the games print to."""

    def write(self, text: str) -> int:
        return len(text)

    def flush(self) -> None:
        pass


def play(game: str, seed: int, moves: Sequence[str]) -> dict[str, Any]:
    """{"text": what the game says to the last move, or its rules; "done", "reward": a number at the end, "reason"}."""
    sys.stdout = _Quiet()
    played = textarena.make(game)
    played.reset(num_players=1, seed=seed)
    text, done = _said(played), False
    for move in moves:
        done, _ = played.step(move)
        text = _said(played)
        if done:
            break
    if not done:
        return {"text": text, "done": False, "reward": None, "reason": ""}
    rewards, info = played.close()
    ending = info.get(0, {}) if isinstance(info, dict) else {}
    reward = rewards.get(0) if isinstance(rewards, dict) else None
    return {
        "text": text,
        "done": True,
        "reward": float(reward) if isinstance(reward, int | float) else None,
        "reason": str(ending.get("reason") or ""),
    }


def games() -> list[str]:
    return sorted(ENV_REGISTRY)


def _said(played: Any) -> str:
    """What is new to the player, without the player's own words."""
    _, messages = played.get_observation()
    own = textarena.ObservationType.PLAYER_ACTION
    return "\n".join(str(text).strip() for _, text, kind in messages if kind is not own).strip()
