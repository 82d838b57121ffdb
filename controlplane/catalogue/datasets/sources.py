"""Sources of datasets other than an upload: the Hugging Face hub, a path on the server, or tasks of reasoning-gym.

Names are only checked by their syntax, and paths by where they resolve to; another process reads the source
(controlplane.catalogue.datasets.fetching).
"""

import os
import re
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, ClassVar

from django.conf import settings

from controlplane.catalogue.datasets.errors import SourceRefused
from workers.packages import reasoning
from workers.packages.families import VERSION, WITHOUT_ANSWER
from workers.packages.reasoning import Recipe

_ID = re.compile(r"[A-Za-z0-9][\w.-]{0,95}(/[A-Za-z0-9][\w.-]{0,95})?", re.ASCII)
_REVISION = re.compile(r"[\w][\w./-]{0,199}", re.ASCII)
_WORD = re.compile(r"[\w][\w .+-]{0,99}")
_SCHEME = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*:")
MAX_FAMILIES = 20
URL_REFUSAL = "URLs are not supported. Enter the id of a dataset on the hub, such as openai/gsm8k, or upload the file."


@dataclass(frozen=True)
class HubSource:
    """Split of a dataset on the hub. If `config` is "", it is the default configuration."""

    kind: ClassVar = "hub"
    id: str
    config: str = ""
    split: str = "train"
    revision: str = "main"

    def __post_init__(self) -> None:
        if _SCHEME.match(self.id) or "//" in self.id:
            raise SourceRefused(URL_REFUSAL)
        if not _ID.fullmatch(self.id) or ".." in self.id:
            raise SourceRefused("A dataset's id looks like owner/name.")
        if self.config and not _WORD.fullmatch(self.config):
            raise SourceRefused("A configuration's name can only have letters, digits, dots, dashes and underscores.")
        if not _WORD.fullmatch(self.split):
            raise SourceRefused(
                "A split's name, such as train, can only have letters, digits, dots, dashes and underscores."
            )
        if not _REVISION.fullmatch(self.revision) or ".." in self.revision:
            raise SourceRefused("A revision is a branch, a tag or a commit.")

    def as_dict(self) -> dict[str, str]:
        return asdict(self)

    @property
    def title(self) -> str:
        """Name shown on pages where an upload's file name is shown."""
        return f"{self.id} · {self.config + ' · ' if self.config else ''}{self.split}"


@dataclass(frozen=True)
class PathSource:
    """File or folder of shards on this server. `path` is replaced by the real path from `server_path`."""

    kind: ClassVar = "path"
    path: str

    def __post_init__(self) -> None:
        object.__setattr__(self, "path", str(server_path(self.path)))

    def as_dict(self) -> dict[str, str]:
        return asdict(self)

    @property
    def title(self) -> str:
        return Path(self.path).name


@dataclass(frozen=True)
class TasksSource:
    """Tasks that reasoning-gym generates, alternating between families. Level 0 means the families' own settings."""

    kind: ClassVar = "tasks"
    families: tuple[str, ...]
    rows: int
    seed: int = 0
    level: int = 0

    def __post_init__(self) -> None:
        if not 1 <= len(self.families) <= MAX_FAMILIES or self.rows < len(self.families):
            raise SourceRefused(f"Choose 1 to {MAX_FAMILIES} families, with at least one row each.")
        without_answers = sorted(WITHOUT_ANSWER.intersection(self.families))
        if without_answers and len(without_answers) < len(set(self.families)):
            raise SourceRefused(
                f"Tasks of {', '.join(without_answers)} have many right answers, so their rows contain none: "
                "create a separate dataset for them."
            )
        for recipe in self.recipes:
            if problem := reasoning.problem(recipe):
                raise SourceRefused(problem)

    @property
    def recipes(self) -> list[Recipe]:
        """One recipe per family. Rows are divided equally; the first families get one more if there is a remainder."""
        rows_per_family, remaining_rows = divmod(self.rows, len(self.families))
        return [
            Recipe(family, rows_per_family + (index < remaining_rows), self.seed, self.level)
            for index, family in enumerate(self.families)
        ]

    def as_dict(self) -> dict[str, Any]:
        return asdict(self) | {"families": list(self.families), "version": VERSION}

    @property
    def title(self) -> str:
        names = ", ".join(self.families[:3]) + (f" and {len(self.families) - 3} more" if self.families[3:] else "")
        level = f" · level {self.level}" if self.level else ""
        return f"{names}{level} · seed {self.seed}"


Source = HubSource | PathSource | TasksSource


def roots() -> tuple[Path, ...]:
    """List the folders that operators may read datasets from, with symbolic links resolved."""
    return tuple(Path(os.path.realpath(root)) for root in settings.DATASET_ROOTS)


def server_path(entered_path: str) -> Path:
    """Return the file or folder at a path, with every symbolic link resolved. Raises SourceRefused outside the allowed
    folders, without revealing whether anything exists there."""
    allowed_roots = roots()
    if not allowed_roots:
        raise SourceRefused(
            "This installation allows no paths on its server: CONTROLPLANE_DATASET_ROOTS lists no folders."
        )
    if _SCHEME.match(entered_path):
        raise SourceRefused("Enter a path on the server, not a URL.")
    if not entered_path.startswith("/") or any(ord(character) < 32 for character in entered_path):
        raise SourceRefused("Enter the absolute path, starting with /.")
    try:
        path = Path(os.path.realpath(entered_path, strict=True))
    except (OSError, ValueError):
        path = Path(os.path.realpath(entered_path)) if len(entered_path) < 4096 else Path("/")
    is_allowed = any(path == root or root in path.parents for root in allowed_roots)
    if not is_allowed:
        raise SourceRefused(f"Only these folders of the server may be read: {', '.join(map(str, allowed_roots))}.")
    if not path.is_file() and not path.is_dir():
        raise SourceRefused("There is no such file or folder.")
    try:
        str(path).encode()
    except UnicodeEncodeError as error:  # no database can store it and no page can show it
        raise SourceRefused("The file's name is not valid UTF-8. Rename the file.") from error
    return path
