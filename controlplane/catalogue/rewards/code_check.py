"""Checks of custom code before it is saved: signature, syntax, and a trial on samples in the web's sandbox."""

from collections.abc import Callable, Sequence
from typing import Any

from controlplane.catalogue.rewards import turns
from controlplane.catalogue.rewards.models import RewardVersion
from controlplane.catalogue.versioned import saving
from controlplane.platform.accounts.models import User
from workers.contract.run.spec import RewardSpec
from workers.rewards.entries import custom
from workers.rewards.library import LIBRARY
from workers.rewards.reward import Completion

SECONDS = 20.0
"""Time limit of the whole check; a function's samples get half of it."""
KEY = "python"
PARAM = "source"
Sample = tuple[Completion, dict[str, Any]]
_TEXTS = ("<think>\nSix times seven.\n</think>\n<answer>42</answer>", "The answer is 42", "I don't know.")
_ROW = {"row": 0, "prompt": "What is 6 times 7?", "answer": "42", "test_cases": ["assert f(6, 7) == 42"]}


def problems(
    specs: Sequence[RewardSpec], user: User, samples: Callable[[], Sequence[Sample]] = lambda: ()
) -> dict[int, str]:
    """Explain by a component's index why this user can't save it. Only code that no version has is tried.

    `samples`: the playground's, requested only for new code; made-up ones if there are none.
    """
    by_index = {}
    for index, spec in enumerate(specs):
        if not saving.may_use_part(RewardVersion, user, spec):
            by_index[index] = saving.code_refused(RewardVersion)
        elif spec.function == KEY and not saving.is_saved(RewardVersion, spec):
            error_text = check(str(spec.params.get(PARAM, LIBRARY[KEY].defaults()[PARAM])), samples()).problem
            if error_text:
                by_index[index] = f"It can't be saved like this: {error_text}"
    return by_index


def check(source: str, samples: Sequence[Sample] = ()) -> custom.CodeTrial:
    """Try a source. Its errors are in the result, as is a missing sandbox on the web's machine."""
    turn = turns.turn(SECONDS)
    return custom.trial(source, [*samples] or made_up(), turn.tools, seconds=SECONDS / 2)


def made_up() -> list[Sample]:
    return [(Completion(text), dict(_ROW)) for text in _TEXTS]
