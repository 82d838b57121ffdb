"""What the fetching process says when it brings nothing."""

from __future__ import annotations


class Refused(Exception):
    """The source can't be had; the message is for people, and `advice` says what to do about it.

    `passing`: another try may do better.
    """

    def __init__(self, message: str, advice: str = "", *, passing: bool = False) -> None:
        super().__init__(message)
        self.advice, self.passing = advice, passing
