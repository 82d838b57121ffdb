"""What a process that the caller forks, such as a data loader's worker, must not share with it: descriptors of its
zygote and its evaluations, and locks that its threads may hold."""

from __future__ import annotations

import os
import weakref
from typing import Protocol


class Left(Protocol):
    def left_in_fork(self) -> None:
        """Close what is the parent's, and begin anew. Called in the child, which has one thread."""


_known: weakref.WeakSet[Left] = weakref.WeakSet()


def tell(one: Left) -> None:
    """It is told in every fork of this process, as long as it is there."""
    _known.add(one)


def _in_child() -> None:
    for one in list(_known):
        one.left_in_fork()


os.register_at_fork(after_in_child=_in_child)
