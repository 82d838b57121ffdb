"""The fetching process. Called with FOLDER and hub, path or tasks, it stores the source and prints {"bytes", "sha256",
"found"} or {"refused": {...}}."""

import errno
import json
import resource
import shutil
import sys
from pathlib import Path
from typing import Any

from controlplane.catalogue.datasets.fetching import hub, serverpath, tasks
from controlplane.catalogue.datasets.fetching.choosing import NotFetched
from controlplane.catalogue.datasets.fetching.joining import join
from controlplane.catalogue.datasets.reader import files, limits
from controlplane.catalogue.datasets.reader.progress_file import ProgressFile
from controlplane.platform.datafolder import FULL_DISK_ERRORS

OVERHEAD_BYTES = 2**26
"""Bytes that a file may have in addition to its data, such as a Parquet footer."""


def main(folder: Path, verb: str) -> int:
    arguments = json.load(sys.stdin)
    limits.apply()
    limit = int(arguments["most"])
    resource.setrlimit(resource.RLIMIT_FSIZE, (limit + OVERHEAD_BYTES, limit + OVERHEAD_BYTES))
    try:
        result = _fetch(folder, verb, arguments, limit)
    except NotFetched as error:
        result = {"refused": {"message": str(error), "advice": error.advice, "passing": error.passing}}
    except MemoryError:
        return limits.MEMORY_EXCEEDED
    except OSError as error:
        if error.errno not in FULL_DISK_ERRORS:
            raise
        return errno.ENOSPC
    json.dump(result, sys.stdout)
    return 0


def _fetch(folder: Path, verb: str, arguments: dict[str, Any], limit: int) -> dict[str, Any]:
    description: dict[str, Any] = {}
    if verb == "hub":
        shards, choice, description = hub.fetch(arguments["source"], folder, limit)
        kind = choice.kind
    elif verb == "tasks":
        shards, kind = tasks.make(arguments["source"], arguments["backend"], folder, limit)
    else:
        roots = [Path(root) for root in arguments["roots"]]
        shards, kind = serverpath.copy(Path(arguments["source"]["path"]), roots, folder, limit)
    source = folder / files.SOURCE
    total = sum(path.stat().st_size for _, path in shards)
    progress = ProgressFile(folder, "joining", total if len(shards) > 1 else 0)
    join(shards, kind, source, limit, progress)
    shutil.rmtree(folder / "hub", ignore_errors=True)
    size = source.stat().st_size
    if not size:
        raise NotFetched("The file is empty.")
    return {"bytes": size, "sha256": files.sha256_of(source), "found": description}


if __name__ == "__main__":
    raise SystemExit(main(Path(sys.argv[1]), sys.argv[2]))
