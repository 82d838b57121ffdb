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
    """Support for tools in a chat template, together with what TRL adds."""

    lacks: tuple[str, ...] = ()
    """Parts that the template can't render: tools, calls or results."""
    keeps_prefix: bool = True
    """True if adding a tool result leaves the text before it unchanged."""
    readable: bool = True
    """True if the trainer can parse the calls that the model writes."""
    in_trl: bool = True
    """True if TRL knows this template, and has a training template for it if it needs one."""
    instead: str = ""
    """Name of a TRL template that can render tools with this model's tokens; "" if there is none."""
    problem: str = ""

    @property
    def works(self) -> bool:
        return not self.problem and not self.lacks and self.readable and (self.keeps_prefix or self.in_trl)


def of_model(model: str, model_type: str = "", *, revision: str = "") -> ToolTemplate | None:
    """Find a model's template support; return None if no host has uploaded its tokenizer, or it can't be read now."""
    tokenizer = tokenizers.of_model(model, revision)
    if tokenizer is None:
        return None
    try:
        findings = _examine(tokenizer.pk)
    except ChildFailed:
        return None
    return ToolTemplate(
        lacks=tuple(findings["lacks"]),
        keeps_prefix=findings["keeps_prefix"],
        readable=findings["parses"] or findings["in_tags"] or bool(name_of(findings["sha256"])),
        in_trl=bool(name_of(findings["sha256"])),
        instead=alternative(tuple(findings["marks"]), model_type),
        problem=findings["problem"],
    )


@lru_cache(maxsize=256)
def _examine(sha256: str) -> dict[str, Any]:
    """Return the reader process's findings, cached without expiry since the checksum identifies the files."""
    findings: dict[str, Any] = reader_process.ask(Tokenizer(sha256=sha256).folder, "tools", {})
    return findings
