"""Start of the process that fetches a source, and conversion of its result to columns of the version."""

import os
from collections.abc import Callable
from typing import Any

from django.conf import settings

from controlplane.catalogue.datasets import reader_process, sources
from controlplane.catalogue.datasets.errors import ChildFailed
from controlplane.catalogue.datasets.models import DatasetVersion
from workers.contract.stack.packages import PYTHON
from workers.packages import interpreter
from workers.packages.interpreter import PackageMissing
from workers.sandbox.outcomes import SandboxUnavailable
from workers.sandbox.selftest import best as best_backend

PROGRAM = ("-m", "controlplane.catalogue.datasets.fetching")
INHERITED_VARIABLES = (
    "HF_ENDPOINT", "HF_TOKEN", "HTTP_PROXY", "HTTPS_PROXY", "NO_PROXY", "http_proxy", "https_proxy", "no_proxy",
    "SSL_CERT_FILE", "SSL_CERT_DIR", "REQUESTS_CA_BUNDLE",
)  # fmt: skip


def fetch(version: DatasetVersion, is_wanted: Callable[[], bool]) -> dict[str, Any]:
    """Fetch a version's source into its folder, and return the database fields to store. Raises ChildFailed if that
    fails or the source is refused, and reader_process.ResultUnwanted once `is_wanted()` is False."""
    arguments: dict[str, Any] = {
        "source": version.source,
        "most": settings.DATASET_MAX_BYTES,
        "roots": [str(root) for root in sources.roots()],
    }
    environment: dict[str, str] = {}
    if version.source_kind == DatasetVersion.HUB:
        environment = _hub_environment(str(version.folder))
    elif version.source_kind == DatasetVersion.TASKS:
        arguments["backend"], environment[PYTHON] = _for_tasks()
    result = reader_process.run_for_json(
        version.folder,
        version.source_kind,
        arguments,
        is_wanted=is_wanted,
        program=PROGRAM,
        environment=environment,
    )
    if refusal := result.get("refused"):
        kind = "source" if refusal["passing"] else "refused"
        raise ChildFailed(kind, refusal["message"], refusal["advice"])
    details = result["found"]
    source = version.source
    if details and version.source_kind == DatasetVersion.HUB:
        new_name = {"renamed_to": details["id"]} if details["id"] != source["id"] else {}
        source = source | {name: details[name] for name in ("commit", "config", "files")} | new_name
    return {"bytes": result["bytes"], "source_sha256": result["sha256"], "source": source}


def _for_tasks() -> tuple[str, str]:
    """Return the sandbox backend and the interpreter with reasoning-gym, building the latter if it is missing. Raises
    ChildFailed if either is unavailable."""
    try:
        return best_backend(), interpreter.build()
    except (PackageMissing, SandboxUnavailable) as error:
        raise ChildFailed("server", str(error), "Then try again.") from None


def _hub_environment(folder: str) -> dict[str, str]:
    """Build the hub client's environment: a cache in `folder`, no telemetry, and plain HTTP to measure its progress."""
    inherited = {name: os.environ[name] for name in INHERITED_VARIABLES if name in os.environ}
    timeout = str(settings.DATASET_HUB_SILENCE_S)
    return inherited | {
        "HOME": folder,
        "HF_HOME": f"{folder}/hub",
        "HF_HUB_ETAG_TIMEOUT": timeout,
        "HF_HUB_DOWNLOAD_TIMEOUT": timeout,
        "HF_HUB_DISABLE_TELEMETRY": "1",
        "HF_HUB_DISABLE_PROGRESS_BARS": "1",
        "HF_HUB_DISABLE_XET": "1",
    }
