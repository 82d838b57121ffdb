"""Checks of custom code before it is saved: signature, syntax, and a trial on samples in the web's sandbox."""

from collections.abc import Callable, Sequence
from typing import Any

from controlplane.catalogue.rewards import scored
from controlplane.catalogue.rewards.models import RewardVersion
from controlplane.catalogue.versioned import saving
from controlplane.platform.accounts.models import User
from workers.contract.run.spec import RewardSpec
from workers.rewards.entries import custom
from workers.rewards.library import LIBRARY
from workers.rewards.reward import Completion

TIMEOUT_S = 20.0
"""Time limit of the whole check; a function's samples get half of it."""
KEY = "python"
PARAM = "source"
Sample = tuple[Completion, dict[str, Any]]
_TEXTS = ("<think>\nSix times seven.\n</think>\n<answer>42</answer>", "The answer is 42", "I don't know.")
_ROW = {"row": 0, "prompt": "What is 6 times 7?", "answer": "42", "test_cases": ["assert f(6, 7) == 42"]}


def problems(
    specs: Sequence[RewardSpec], user: User, samples: Callable[[], Sequence[Sample]] = lambda: ()
) -> dict[int, str]:
    """Return the reasons why this user can't save components, by their index. Only code that no version has is tried:
    on the playground's `samples`, a function called only in that case, or on made-up ones if there are none."""
    by_index = {}
    for index, spec in enumerate(specs):
        if not saving.may_use_part(RewardVersion, user, spec):
            by_index[index] = saving.code_refused(RewardVersion)
        elif spec.function == KEY and not saving.is_saved(RewardVersion, spec):
            code_problem = check(str(spec.params.get(PARAM, LIBRARY[KEY].defaults()[PARAM])), samples()).problem
            if code_problem:
                by_index[index] = f"This code can't be saved: {code_problem}"
    return by_index


def check(source: str, samples: Sequence[Sample] = ()) -> custom.CodeTrial:
    """Try out source code, and return the result, including the code's errors or a missing sandbox."""
    return scored.trial(source, [*samples] or invented_samples(), TIMEOUT_S)


def invented_samples() -> list[Sample]:
    return [(Completion(text), dict(_ROW)) for text in _TEXTS]
