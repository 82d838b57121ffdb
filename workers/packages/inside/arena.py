"""TextArena in a fork of the sandbox. A game is replayed from its seed to the last move, so that no state is kept."""

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
    """Return {"text": the reply to the last move, or the rules; "done", "reward": a number at the end, "reason"}."""
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
    """Return the messages that are new to the player, without the player's own."""
    _, messages = environment.get_observation()
    own = textarena.ObservationType.PLAYER_ACTION
    return "\n".join(str(text).strip() for _, text, kind in messages if kind is not own).strip()
