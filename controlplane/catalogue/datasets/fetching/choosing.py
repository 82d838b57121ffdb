"""Selection of a split's files in a repository: from the README's `configs:`, otherwise by their names.

Only names and text are examined. A dataset script is never run and never needed.
"""

from __future__ import annotations

import fnmatch
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import PurePosixPath
from typing import Any

JSONL, JSON, CSV, TSV, PARQUET = "jsonl", "json", "csv", "tsv", "parquet"
KINDS = {
    ".jsonl": JSONL, ".ndjson": JSONL, ".json": JSON, ".csv": CSV, ".tsv": TSV, ".parquet": PARQUET,
}  # fmt: skip
NOT_ROWS = {"dataset_infos.json", "dataset_info.json", "config.json", "state.json", "package.json"}
SPLITS = {
    "train": ("train", "training"),
    "validation": ("validation", "valid", "dev", "val"),
    "test": ("test", "testing", "eval", "evaluation"),
}
MOST_FILES = 5000
MOST_STARS = 6
"""Stars per pattern: each multiplies the time to reject a nearly matching name."""
DEFAULT = "default"
CONVERTED = "refs/convert/parquet"


class NotFetched(Exception):
    """The source can't be fetched. The message is for people; `advice` is the remedy.

    `passing`: a retry may succeed.
    """

    def __init__(self, message: str, advice: str = "", *, passing: bool = False) -> None:
        super().__init__(message)
        self.advice, self.passing = advice, passing


@dataclass(frozen=True)
class SplitFiles:
    config: str
    """The README's name; empty if it has none."""
    split: str
    kind: str
    files: tuple[str, ...]
    """In the order of their rows."""


def choose(names: Sequence[str], card: Mapping[str, Any], config: str, split: str) -> SplitFiles:
    """`names`: all files of the repository; `card`: the README's front matter. Raises NotFetched."""
    data = sorted(name for name in names if kind_of(name) and _is_plain(name))
    configs = _configs(card)
    if not data:
        raise _no_data(names)
    if configs:
        chosen_config, patterns = _by_readme(configs, data, config, split)
    elif config and config != DEFAULT:
        raise NotFetched(f"This dataset has no configuration “{config}”: its README names none.", "Leave it empty.")
    else:
        chosen_config, patterns = "", _by_name(data, split)
    kinds = sorted({kind_of(name) for name in patterns})
    if len(kinds) > 1:
        raise NotFetched(f"The split's files are of several kinds: {', '.join(kinds)}.", "Upload the one you need.")
    if len(patterns) > MOST_FILES:
        raise NotFetched(f"The split has {len(patterns):,} files; {MOST_FILES:,} are the most.")
    return SplitFiles(chosen_config, split, kinds[0], tuple(patterns))


def kind_of(name: str) -> str:
    """The format named by the extension, with or without .gz; "" if it contains no rows."""
    last = PurePosixPath(name).name.lower()
    if last in NOT_ROWS or last.startswith("."):
        return ""
    return KINDS.get(PurePosixPath(last.removesuffix(".gz")).suffix, "")


def _no_data(names: Sequence[str]) -> NotFetched:
    kinds = "JSON Lines, JSON, CSV, TSV and Parquet"
    if any(name.endswith(".py") for name in names):
        return NotFetched(
            "This dataset is made by a script, and scripts of datasets are never run here.",
            f"The hub often has its rows as Parquet: try the revision {CONVERTED}. Else upload them as a file.",
        )
    return NotFetched(f"This dataset has no file that can be read here: {kinds}, also with gzip.")


def _configs(card: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    entries = card.get("configs")
    configs = [entry for entry in entries if isinstance(entry, Mapping)] if isinstance(entries, list) else []
    return [entry for entry in configs if entry.get("data_files") or entry.get("data_dir")]


def _by_readme(configs: list[Mapping[str, Any]], data: list[str], config: str, split: str) -> tuple[str, list[str]]:
    entry = _entry(configs, config)
    name = _name(entry)
    folder = str(entry.get("data_dir") or "").strip("/")
    inside = [file for file in data if not folder or file.startswith(f"{folder}/")]
    splits = _splits(entry.get("data_files"))
    if not splits:
        return name, _by_name(inside, split)
    if split not in splits:
        raise _no_split(split, list(splits))
    files = dict.fromkeys(file for pattern in splits[split] for file in _matching(inside, pattern, folder))
    if not files:
        raise NotFetched(f"The files that the README names for the split “{split}” are missing or can't be read here.")
    return name, list(files)


def _entry(configs: list[Mapping[str, Any]], config: str) -> Mapping[str, Any]:
    if config:
        for entry in configs:
            if _name(entry) == config:
                return entry
        raise NotFetched(
            f"This dataset has no configuration “{config}”.", f"There are: {_listed(map(_name, configs))}."
        )
    if len(configs) == 1:
        return configs[0]
    for entry in configs:
        if entry.get("default") is True or _name(entry) == DEFAULT:
            return entry
    raise NotFetched("This dataset has several configurations.", f"Name one of them: {_listed(map(_name, configs))}.")


def _name(entry: Mapping[str, Any]) -> str:
    return str(entry.get("config_name") or DEFAULT)


def _splits(data_files: Any) -> dict[str, list[str]]:
    """{"train": patterns} from a README's data_files: a pattern, a list of them, {"split", "path"} tables, or one of
    these."""
    if isinstance(data_files, Mapping):
        data_files = [{"split": split, "path": path} for split, path in data_files.items()]
    patterns_by_split: dict[str, list[str]] = {}
    for entry in data_files if isinstance(data_files, list) else [data_files]:
        split, path = (entry.get("split"), entry.get("path")) if isinstance(entry, Mapping) else (None, entry)
        patterns = [text for text in (path if isinstance(path, list) else [path]) if isinstance(text, str)]
        if patterns:
            patterns_by_split.setdefault(str(split or "train"), []).extend(patterns)
    return patterns_by_split


def _matching(data: list[str], pattern: str, folder: str) -> list[str]:
    full_pattern = f"{folder}/{pattern}" if folder else pattern
    if full_pattern.count("*") > MOST_STARS:
        raise NotFetched(
            f"The README names the files by a pattern of more than {MOST_STARS} stars: “{full_pattern[:80]}”."
        )
    fits = _regex(full_pattern.removeprefix("./"))
    return [name for name in data if fits.fullmatch(name)]


def _regex(pattern: str) -> re.Pattern[str]:
    """`*` and `?` stay within a folder, `**` doesn't."""
    parts = re.split(r"(\*\*/|\*\*|\*|\?|\[[^]]*\])", pattern)
    means = {"**/": "(?:.*/)?", "**": ".*", "*": "[^/]*", "?": "[^/]"}
    return re.compile("".join(means.get(part) or _literal(part) for part in parts))


def _literal(part: str) -> str:
    if part.startswith("[") and part.endswith("]"):
        return fnmatch.translate(part).removesuffix(r"\Z").removesuffix(r"\z")
    return re.escape(part)


def _by_name(data: list[str], split: str) -> list[str]:
    """Files whose path contains the split's word; all files if none does and train is requested."""
    if not data:
        raise NotFetched("This configuration has no file that can be read here.")
    of: dict[str, list[str]] = {}
    for name in data:
        of.setdefault(_split_of(name), []).append(name)
    for canonical in ("", *SPLITS):
        if split == canonical or split in SPLITS.get(canonical, ()):
            split = canonical
    if split in of:
        return of[split]
    if split == "train" and set(of) == {""}:
        return data
    words = {name for name in data if split in re.split(r"[^a-z0-9]+", name.lower())}
    if words:
        return sorted(words)
    raise _no_split(split, [canonical or "train" for canonical in of])


def _split_of(name: str) -> str:
    """The last word of the path that names a split counts."""
    words = re.split(r"[^a-z0-9]+", name.lower())
    for word in reversed(words):
        for split, aliases in SPLITS.items():
            if word in aliases:
                return split
    return ""


def _no_split(split: str, available: list[str]) -> NotFetched:
    return NotFetched(f"This dataset has no split “{split}”.", f"There are: {_listed(sorted(available))}.")


def _listed(names: Any) -> str:
    distinct = list(dict.fromkeys(names))
    return ", ".join(distinct[:20]) + (", …" if len(distinct) > 20 else "")


def _is_plain(name: str) -> bool:
    """True if the path stays inside the folder that it is written to."""
    parts = PurePosixPath(name).parts
    return not name.startswith("/") and ".." not in parts and "\\" not in name and "\0" not in name
