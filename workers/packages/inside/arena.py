"""TextArena in a fork of the sandbox. Each game is replayed from its seed to the last move, so no state is kept."""

import sys
import warnings
from collections.abc import Sequence
from typing import Any

warnings.simplefilter("ignore")

import textarena  # noqa: E402
from textarena.envs.registration import ENV_REGISTRY  # noqa: E402


class _NullOutput:
    def write(self, text: str) -> int:
        return len(text)

    def flush(self) -> None:
        pass


def play(game: str, seed: int, moves: Sequence[str]) -> dict[str, Any]:
    """Play moves, and return {"text", "done", "reward", "reason"}: `text` is the reply to the last move, or the rules;
    `reward` is a number once the game has ended."""
    sys.stdout = _NullOutput()
    environment = textarena.make(game)
    environment.reset(num_players=1, seed=seed)
    text, done = _new_messages(environment), False
    for move in moves:
        done, _ = environment.step(move)
        text = _new_messages(environment)
        if done:
            break
    if not done:
        return {"text": text, "done": False, "reward": None, "reason": ""}
    rewards, info = environment.close()
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


def _new_messages(environment: Any) -> str:
    _, messages = environment.get_observation()
    own_kind = textarena.ObservationType.PLAYER_ACTION
    return "\n".join(str(text).strip() for _, text, kind in messages if kind is not own_kind).strip()
