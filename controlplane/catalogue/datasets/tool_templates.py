"""Support for tools in a model's chat template, read by the child from a tokenizer that a host uploaded."""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from typing import Any

from controlplane.catalogue.datasets import reader_process, tokenizers
from controlplane.catalogue.datasets.errors import ChildFailed
from controlplane.catalogue.datasets.models import Tokenizer
from workers.contract.stack.tool_templates import alternative, name_of


@dataclass(frozen=True)
class ToolTemplate:
    lacks: tuple[str, ...] = ()
    """Parts that the template leaves out: tools, calls, results."""
    keeps_prefix: bool = True
    """A result leaves the text before it as it was."""
    readable: bool = True
    """The trainer can read the calls that the model writes."""
    known: bool = True
    """TRL has a training template for it if it needs one."""
    instead: str = ""
    """TRL's template that can show tools in this model's tokens; "": there is none."""
    problem: str = ""

    @property
    def works(self) -> bool:
        return not self.problem and not self.lacks and self.readable and (self.keeps_prefix or self.known)


def of_model(model: str, model_type: str = "", *, revision: str = "") -> ToolTemplate | None:
    """None: no host has brought the model's tokenizer, or it can't be read now."""
    known = tokenizers.of_model(model, revision)
    if known is None:
        return None
    try:
        found = _read(known.pk)
    except ChildFailed:
        return None
    return ToolTemplate(
        lacks=tuple(found["lacks"]),
        keeps_prefix=found["keeps_prefix"],
        readable=found["parses"] or found["in_tags"] or bool(name_of(found["sha256"])),
        known=bool(name_of(found["sha256"])),
        instead=alternative(tuple(found["marks"]), model_type),
        problem=found["problem"],
    )


@lru_cache(maxsize=256)
def _read(sha256: str) -> dict[str, Any]:
    """Cached by the files' checksum, so that an answer never expires."""
    answer: dict[str, Any] = reader_process.ask(Tokenizer(sha256=sha256).folder, "tools", {})
    return answer
