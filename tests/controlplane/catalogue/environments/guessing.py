"""A game for tests: guess the number that the seed has drawn."""

from __future__ import annotations

import random
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from workers.environments.entry import Entry, EntryKind, EpisodeSession, Result
from workers.rewards.parameters import Params
from workers.rewards.tools import Tools


@dataclass(frozen=True)
class GuessingParams(Params):
    pass


class _Guessing(EpisodeSession):
    def reset(self, row: Mapping[str, Any], seed: int) -> str:
        self._drawn = random.Random(seed).randint(1, 100)  # no secret
        return "Guess a number from 1 to 100."

    def answer(self, text: str, seconds: float) -> Result:
        guess = int(text)
        if guess == self._drawn:
            return Result("Right.", reward=1.0, done=True)
        return Result("Higher." if guess < self._drawn else "Lower.", reward=0.0)


def _open(name: str, params: GuessingParams, tools: Tools) -> EpisodeSession:
    return _Guessing()


GUESSING = Entry("guessing", "Guessing", "A game.", GuessingParams, kind=EntryKind.GAME, open=_open)
