"""Generation of tasks by reasoning-gym, in a sandbox of the interpreter that has it; nothing is downloaded."""

import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from controlplane.catalogue.datasets.fetching.choosing import NotFetched
from controlplane.catalogue.datasets.reader.parsing.formats import JSONL
from controlplane.catalogue.datasets.reader.progress_file import ProgressFile
from controlplane.catalogue.datasets.sources import TasksSource
from workers.packages import reasoning
from workers.packages.interpreter import PackageMissing, open_sandbox
from workers.sandbox.outcomes import Backend, SandboxUnavailable
from workers.sandbox.pool import Sandbox

STAGE = "making"


def make(source: Mapping[str, Any], backend: str, folder: Path, limit: int) -> tuple[list[tuple[str, Path]], str]:
    """Generate the rows into a file in `folder`, and return ([(name, file)], their kind). Raises NotFetched if they
    exceed the limit, or if they can't be generated."""
    tasks = TasksSource(tuple(source["families"]), source["rows"], source["seed"], source["level"])
    target = folder / "shard0"
    progress = ProgressFile(folder, STAGE, tasks.rows)
    size = rows = 0
    try:
        with open_sandbox(reasoning.MODULE, Backend(backend)) as sandbox, target.open("xb") as out:
            for row in _alternating([_rows(recipe, sandbox) for recipe in tasks.recipes]):
                line = json.dumps(row, ensure_ascii=False).encode() + b"\n"
                size, rows = size + len(line), rows + 1
                if size > limit:
                    raise NotFetched("These rows exceed this installation's size limit.", "Generate fewer rows.")
                out.write(line)
                progress.report(rows, rows)
    except reasoning.GenerationFailed as error:
        raise NotFetched(str(error), "Choose another level or another seed, or leave the family out.") from error
    except (PackageMissing, SandboxUnavailable) as error:
        raise NotFetched(str(error), passing=True) from error
    return [("tasks.jsonl", target)], JSONL


def _rows(recipe: reasoning.Recipe, sandbox: Sandbox) -> Iterator[dict[str, Any]]:
    for piece in reasoning.generate(recipe, sandbox):
        yield from ({"family": recipe.family, **row} for row in piece)


def _alternating(iterators: list[Iterator[dict[str, Any]]]) -> Iterator[dict[str, Any]]:
    while iterators:
        iterators, current_iterators = [], iterators
        for rows in current_iterators:
            if (row := next(rows, None)) is not None:
                iterators.append(rows)
                yield row
