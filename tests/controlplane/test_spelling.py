"""People read one spelling, the American one of the field's terms: color, normalize, optimizer."""

from __future__ import annotations

import re

from controlplane.setup.serving.processes import BASE_DIR

BRITISH = re.compile(
    r"\b\w*(?:colour|behaviour|favour|honour|neighbour|licence|centre|judgement|artefact|cancell(?:ed|ing)"
    r"|(?:normal|optim|recogn|initial|organ|quant|util|serial|summar|final|penal|token|general|local|author)"
    r"is(?:e|ed|er|ers|es|ing|ation|ations)\b)\w*",
    re.IGNORECASE,
)
NO_WORDS = re.compile(r"\{%.*?%\}|\{\{.*?\}\}|\{#.*?#\}|<[^>]*>|`[^`]*`|```.*?```|\]\([^)]*\)", re.DOTALL)
"""Of a template or a page of documentation: what is code."""


def test_templates_and_documentation_are_spelled_alike() -> None:
    folders = ("frontend", "controlplane", "runs", "workers", "docker", "grpoctl")
    pages = [*(BASE_DIR / "frontend/templates").rglob("*.html"), BASE_DIR / "README.md", BASE_DIR / "CHANGELOG.md"]
    pages += [path for folder in folders for path in (BASE_DIR / folder).rglob("*.md")]
    found = {str(path.relative_to(BASE_DIR)): BRITISH.findall(NO_WORDS.sub(" ", path.read_text())) for path in pages}
    assert {name: words for name, words in found.items() if words} == {}
