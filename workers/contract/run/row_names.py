"""The names that rows go by (their dataset, sources and tags), and the rows that a reward component applies to.

Standard library only. A component without names applies to every row. A row to which it doesn't apply has no score
from it: it is neither in the row's total nor in the component's mean.
"""

from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import Any

from workers.contract.run.mixing import SourceSpec, place_of
from workers.contract.run.spec import RewardSpec

COLUMNS = ("source", "data_source", "source_dataset", "dataset", "family", "task", "subject", "category")
"""Names under which the metadata of rows may hold their source, in order of preference."""
TAGS = "tags"
"""Name of the metadata's column of tags, which count in addition to the sources."""
MAX_NAMES = 32
MAX_NAME_CHARS = 200


def names_in(row: Mapping[str, Any], column: str) -> list[str]:
    """Return the names in one column of a row, without duplicates."""
    value = row.get(column)
    names = value if isinstance(value, list) else [value]
    return list(dict.fromkeys(name.strip() for name in names if isinstance(name, str) and name.strip()))


def names_of(row: Mapping[str, Any], dataset: str = "") -> frozenset[str]:
    """Return all names of a row, given its metadata's columns and the name of its dataset."""
    own = {name for column in (*COLUMNS, TAGS) for name in names_in(row, column)}
    return frozenset({*own, dataset} if dataset else own)


def applies(reward: RewardSpec, names: Collection[str]) -> bool:
    """Return whether a component applies to rows with these names."""
    return not reward.applies_to or not set(reward.applies_to).isdisjoint(names)


def applies_to_row(reward: RewardSpec, row: Mapping[str, Any], sources: Sequence[SourceSpec]) -> bool:
    """Return whether a component applies to a row of a run. `sources`: the datasets of the run, its own first."""
    if not reward.applies_to:
        return True
    index = place_of(row["row"])[0]
    return applies(reward, names_of(row, sources[index].name if index < len(sources) else ""))


def rows_of(applies_to: Sequence[str]) -> str:
    """Describe the rows that a component with these names applies to."""
    *first, last = applies_to or ("",)
    return f"rows of {', '.join(first)} or {last}" if first else f"rows of {last}" if last else "all rows"


def rows_metric(reward: str) -> str:
    """Return the name of the metric for the share of completions that a limited component applies to."""
    return f"rewards/{reward}/applies"


def problems(applies_to: Sequence[str]) -> Iterator[str]:
    """Yield the reasons why these can't be the names of rows that a component applies to."""
    if len(applies_to) > MAX_NAMES:
        yield f"At most {MAX_NAMES} names are possible, not {len(applies_to)}."
    for name in applies_to:
        if not name.strip() or name != name.strip():
            yield f"{name!r} is not a name: it is empty or begins or ends with a space."
        elif "," in name:
            yield f"The name {name[:40]} has a comma, which separates names."
        elif len(name) > MAX_NAME_CHARS:
            yield f"The name {name[:40]}… is too long: it has {len(name)} characters of at most {MAX_NAME_CHARS}."
        elif not name.isprintable():
            yield f"The name {name!a} has characters that can't be shown."
    if len(set(applies_to)) < len(applies_to):
        yield "A name stands there twice."
