"""Static files collected with a compressed copy beside each: Plotly is 4.8 MB, and 1.5 MB on the way."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

from servestatic.storage import CompressedStaticFilesStorage


class StaticStorage(CompressedStaticFilesStorage):  # type: ignore[misc]  # servestatic has no types
    """Compresses only what has changed: every start collects, and Plotly takes a second."""

    def post_process(self, paths: dict[str, Any], dry_run: bool = False, **options: Any) -> Iterator[Any]:
        changed = {name: found for name, found in paths.items() if not self._compressed(name)}
        yield from super().post_process(changed, dry_run=dry_run, **options)

    def _compressed(self, name: str) -> bool:
        file = Path(self.path(name))
        copy = file.with_name(f"{file.name}.gz")
        return copy.exists() and copy.stat().st_mtime >= file.stat().st_mtime
