"""FOLDER hub|path: the source in place, and on stdout {"bytes", "sha256", ...} or {"refused": {...}}."""

from __future__ import annotations

import errno
import hashlib
import json
import resource
import shutil
import sys
from pathlib import Path
from typing import Any

from controlplane.datasets.fetching import hub, serverpath
from controlplane.datasets.fetching.choosing import NotFetched
from controlplane.datasets.fetching.joining import join
from controlplane.datasets.reader import files, limits
from controlplane.datasets.reader.progress_file import ProgressFile

USUAL = 2**26
"""Bytes beside the data that a file may have: what a Parquet file has at its end."""


def main(folder: Path, verb: str) -> int:
    given = json.load(sys.stdin)
    limits.apply()
    most = int(given["most"])
    resource.setrlimit(resource.RLIMIT_FSIZE, (most + USUAL, most + USUAL))
    try:
        answer = _fetched(folder, verb, given, most)
    except NotFetched as error:
        answer = {"refused": {"message": str(error), "advice": error.advice, "passing": error.passing}}
    except MemoryError:
        return limits.TOO_MUCH
    except OSError as error:
        if error.errno not in (errno.ENOSPC, errno.EDQUOT):
            raise
        return errno.ENOSPC
    json.dump(answer, sys.stdout)
    return 0


def _fetched(folder: Path, verb: str, given: dict[str, Any], most: int) -> dict[str, Any]:
    found: dict[str, Any] = {}
    if verb == "hub":
        shards, choice, found = hub.fetch(given["source"], folder, most)
        kind = choice.kind
    else:
        roots = [Path(root) for root in given["roots"]]
        shards, kind = serverpath.copy(Path(given["source"]["path"]), roots, folder, most)
    source = folder / files.SOURCE
    total = sum(path.stat().st_size for _, path in shards)
    progress = ProgressFile(folder, "joining", total if len(shards) > 1 else 0)
    join(shards, kind, source, most, progress)
    shutil.rmtree(folder / "hub", ignore_errors=True)
    size = source.stat().st_size
    if not size:
        raise NotFetched("The file is empty.")
    with source.open("rb") as file:
        return {"bytes": size, "sha256": hashlib.file_digest(file, "sha256").hexdigest(), "found": found}


if __name__ == "__main__":
    raise SystemExit(main(Path(sys.argv[1]), sys.argv[2]))
