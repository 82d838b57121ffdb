"""The entry point to confined work: a function that runs in a child process when it is called."""

import inspect
import json
import logging
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Generic, ParamSpec, TypeVar

from controlplane.platform.confined import messages
from controlplane.platform.confined.limits import MAX_SECONDS, StoppedAtLimit
from controlplane.platform.confined.pool import TOO_LARGE, ChildPool

log = logging.getLogger(__name__)

P = ParamSpec("P")
R = TypeVar("R")

SECONDS = 10.0
LIMITS = {
    "size": TOO_LARGE,
    "memory": "needed more memory than the server allows, so it was stopped. Try it with less input.",
    "depth": "was stopped because the input is nested too deeply.",
}
"""Ends of the sentences for what a child reports."""
QUICK = ChildPool(2)
"""Children for documents and checks, which usually take milliseconds."""


@dataclass(frozen=True)
class ConfinedTask(Generic[P, R]):
    """A function of foreign input. Its annotations must be types that messages can carry."""

    function: Callable[P, R]
    what: str
    """Subject of the error messages, such as "Reading this document"."""
    raises: tuple[type[Exception], ...] = ()
    """Errors of the function that are raised here, too, with only their message."""
    pool: ChildPool = QUICK

    def __post_init__(self) -> None:
        self.pool.modules.add(self.function.__module__)

    def __call__(self, *args: P.args, **kwargs: P.kwargs) -> R:
        """Run the function in a child, or here if this is one. Raises NotFinished if it doesn't return a result, and
        those of its exceptions that `raises` names."""
        return self.within(SECONDS)(*args, **kwargs)

    def within(self, seconds: float, is_wanted: Callable[[], bool] = lambda: True) -> Callable[P, R]:
        """Return the task with another time limit, up to MAX_SECONDS. A task that is no longer wanted ends early."""
        seconds = min(seconds, MAX_SECONDS)

        def run(*args: P.args, **kwargs: P.kwargs) -> R:
            if messages.is_child():
                return self.function(*args, **kwargs)
            call = inspect.signature(self.function).bind(*args, **kwargs)
            call.apply_defaults()
            answer = self.pool.run(self._message(call.args, seconds), self.what, seconds, is_wanted)
            return self._result(json.loads(answer))

        return run

    def _message(self, arguments: tuple[Any, ...], seconds: float) -> bytes:
        try:
            return messages.encode(
                {
                    "function": messages.name_of(self.function),
                    "arguments": arguments,
                    "seconds": seconds,
                    "raises": [messages.name_of(error) for error in self.raises],
                }
            )
        except RecursionError:
            raise StoppedAtLimit(f"{self.what} {LIMITS['depth']}") from None

    def _result(self, answer: dict[str, Any]) -> R:
        if "value" in answer:
            result: R = messages.result_of(self.function, answer["value"])
            return result
        if "raised" in answer:
            raise next(error for error in self.raises if messages.name_of(error) == answer["raised"])(answer["message"])
        if "limit" in answer:
            raise StoppedAtLimit(f"{self.what} {LIMITS[answer['limit']]}")
        log.error("%s failed:\n%s", self.what, answer["failed"])
        raise StoppedAtLimit(f"{self.what} failed because of an error on the server, whose log has the details.")
