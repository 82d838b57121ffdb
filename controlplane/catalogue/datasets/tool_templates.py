"""Support for tools in a model's chat template, as the reader process finds it in an uploaded tokenizer."""

from dataclasses import dataclass
from functools import lru_cache
from typing import Any

from controlplane.catalogue.datasets import reader_process, tokenizers
from controlplane.catalogue.datasets.errors import ChildFailed
from controlplane.catalogue.datasets.models import Tokenizer
from workers.contract.stack.tool_templates import alternative, name_of


@dataclass(frozen=True)
class ToolTemplate:
    """The support for tools in a template, and what TRL adds to it."""

    lacks: tuple[str, ...] = ()
    """Parts that the template can't show: tools, calls, results."""
    keeps_prefix: bool = True
    """Adding a result leaves the text before it unchanged."""
    readable: bool = True
    """The trainer can parse the calls that the model writes."""
    in_trl: bool = True
    """TRL has a training template for this one, if it needs one."""
    instead: str = ""
    """TRL's template that can show tools in this model's tokens; "" if there is none."""
    problem: str = ""

    @property
    def works(self) -> bool:
        return not self.problem and not self.lacks and self.readable and (self.keeps_prefix or self.in_trl)


def of_model(model: str, model_type: str = "", *, revision: str = "") -> ToolTemplate | None:
    """Find the support of a model's template; None if no host has uploaded its tokenizer, or it can't be read now."""
    tokenizer = tokenizers.of_model(model, revision)
    if tokenizer is None:
        return None
    try:
        answer = _read(tokenizer.pk)
    except ChildFailed:
        return None
    return ToolTemplate(
        lacks=tuple(answer["lacks"]),
        keeps_prefix=answer["keeps_prefix"],
        readable=answer["parses"] or answer["in_tags"] or bool(name_of(answer["sha256"])),
        in_trl=bool(name_of(answer["sha256"])),
        instead=alternative(tuple(answer["marks"]), model_type),
        problem=answer["problem"],
    )


@lru_cache(maxsize=256)
def _read(sha256: str) -> dict[str, Any]:
    """Read the child's answer, cached by the files' checksum, so that it never expires."""
    answer: dict[str, Any] = reader_process.ask(Tokenizer(sha256=sha256).folder, "tools", {})
    return answer
