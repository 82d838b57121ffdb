"""The verb `derive`: some rows of a ready version become the rows of another one.

They keep their row_id, so runs on either mean the same rows by it, and their part: what was kept out of training once
stays out.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import msgspec

from controlplane.datasets.reading import canonical, files
from controlplane.datasets.reading.duplicates import Duplicates
from controlplane.datasets.reading.filtering import Filter, matching
from controlplane.datasets.reading.looking import batches, open_rows, row_of
from controlplane.datasets.reading.making import make
from controlplane.datasets.reading.mapping import normalised_prompt
from controlplane.datasets.reading.problems import Problem, excerpt
from controlplane.datasets.reading.progress import Progress
from controlplane.datasets.reading.report import Collector


def run(folder: Path, arguments: Mapping[str, Any]) -> dict[str, Any]:
    """{"parent": folder, "filter": {...}, "tokenizer": folder or None, "token_limit": n or None} -> MAPPED, which is
    written as well.

    ROWS and SHOWN are there afterwards if and only if it is usable: a filter that no row passes makes no version.
    Raises FilterError.
    """
    wanted = Filter.from_dict(arguments.get("filter") or {})
    parent = Path(arguments["parent"])
    tokenizer = arguments.get("tokenizer")
    mapped: dict[str, Any] = {"dropped_duplicates": 0, "file_error": None}
    with (
        Collector(folder / files.MAPPED_PROBLEMS) as collector,
        Duplicates(folder) as prompts,
        Duplicates(folder) as all_,
    ):

        def over_limit(row: Mapping[str, Any], tokens: int) -> None:
            said = f"The prompt has {tokens:,} tokens, more than the limit."
            text = excerpt(row["prompt"][-1]["content"][:1000].encode("utf-8", "replace"))
            collector.add(Problem(row["row_id"] + 1, "too_many_tokens", said, text))

        mapped |= make(
            folder,
            _noted(_chosen(parent, wanted, Progress(folder, "writing", 0)), prompts, all_),
            chat=canonical.is_chat(parent / files.ROWS),
            tokenizer=Path(tokenizer) if tokenizer else None,
            token_limit=arguments.get("token_limit"),
            over_limit=over_limit,
            repeated=lambda: (sum(1 for _ in prompts.found()), sum(1 for _ in all_.found())),
        )
        mapped |= collector.as_dict()
    mapped["usable"] = bool(mapped["rows"])
    if not mapped["usable"]:
        mapped["file_error"] = {"kind": "empty_file", "message": "No row passes this filter.", "advice": ""}
        for name in (files.ROWS, files.SHOWN, files.SHOWN_INDEX):
            (folder / name).unlink()
    draft = folder / f"{files.MAPPED}.part"
    draft.write_bytes(msgspec.json.encode(mapped))
    draft.replace(folder / files.MAPPED)
    return mapped


def _chosen(parent: Path, wanted: Filter, progress: Progress) -> Iterator[dict[str, Any]]:
    for at, batch in batches(open_rows(parent)):
        progress.at(0, at)
        for place in matching(batch, wanted):
            yield row_of(batch, place)


def _noted(rows: Iterator[dict[str, Any]], prompts: Duplicates, whole: Duplicates) -> Iterator[dict[str, Any]]:
    for place, row in enumerate(rows):
        prompt = normalised_prompt(row["prompt"])
        prompts.add(prompt, place)
        whole.add(f"{prompt}\0{row['answer']}", place)
        yield row
