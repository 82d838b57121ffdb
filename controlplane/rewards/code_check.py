"""Custom code before it is saved: its signature, its syntax, and a trial on samples in the web's sandbox."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from controlplane.accounts.models import User
from controlplane.rewards import permissions, turns
from workers.contract import RewardSpec
from workers.rewards import LIBRARY, Completion, custom

SECONDS = 20.0
"""For the whole check; a function has half of it for its samples."""
KEY = "python"
PARAM = "source"
Sample = tuple[Completion, dict[str, Any]]
_TEXTS = ("<think>\nSix times seven.\n</think>\n<answer>42</answer>", "The answer is 42", "I don't know.")
_ROW = {"row": 0, "prompt": "What is 6 times 7?", "answer": "42", "test_cases": ["assert f(6, 7) == 42"]}


def problems(
    specs: Sequence[RewardSpec], user: User, samples: Callable[[], Sequence[Sample]] = lambda: ()
) -> dict[int, str]:
    """By a component's place: why this person may not save it as it is. Code that a version has was checked then.

    `samples`: what new code is tried on, of the playground, asked only where there is some; none: made-up ones.
    """
    found = {}
    for place, spec in enumerate(specs):
        if not permissions.may_use(user, spec):
            found[place] = permissions.REFUSED
        elif spec.function == KEY and not permissions.is_saved(spec):
            said = check(str(spec.params.get(PARAM, _default())), samples()).problem
            if said:
                found[place] = f"It can't be saved like this: {said}"
    return found


def check(source: str, samples: Sequence[Sample] = ()) -> custom.CodeTrial:
    """Try a source. Never raises for what it does; without a sandbox on the web's machine its problem says so."""
    turn = turns.turn(SECONDS)
    return custom.trial(source, [*samples] or made_up(), turn.tools, seconds=SECONDS / 2)


def made_up() -> list[Sample]:
    return [(Completion(text), dict(_ROW)) for text in _TEXTS]


def _default() -> Any:
    return LIBRARY[KEY].defaults()[PARAM]
