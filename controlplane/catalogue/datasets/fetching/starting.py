"""The start of the process that fetches a source, and its answer as columns of the version."""

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
PASSED_ON = (
    "HF_ENDPOINT", "HF_TOKEN", "HTTP_PROXY", "HTTPS_PROXY", "NO_PROXY", "http_proxy", "https_proxy", "no_proxy",
    "SSL_CERT_FILE", "SSL_CERT_DIR", "REQUESTS_CA_BUNDLE",
)  # fmt: skip


def fetch(version: DatasetVersion, is_wanted: Callable[[], bool]) -> dict[str, Any]:
    """Fetch a version's source into its folder; return the columns to store. Raises ChildFailed and
    reader_process.Unwanted."""
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
    answer = reader_process.run_answer(
        version.folder,
        version.source_kind,
        arguments,
        is_wanted=is_wanted,
        program=PROGRAM,
        environment=environment,
    )
    if refused := answer.get("refused"):
        kind = "source" if refused["passing"] else "refused"
        raise ChildFailed(kind, refused["message"], refused["advice"])
    details = answer["found"]
    source = version.source
    if details and version.source_kind == DatasetVersion.HUB:
        renamed = {"renamed_to": details["id"]} if details["id"] != source["id"] else {}
        source = source | {name: details[name] for name in ("commit", "config", "files")} | renamed
    return {"bytes": answer["bytes"], "source_sha256": answer["sha256"], "source": source}


def _for_tasks() -> tuple[str, str]:
    """Choose the sandbox's backend, and build the interpreter with reasoning-gym if it is missing. Raises
    ChildFailed."""
    try:
        return best_backend(), interpreter.build()
    except (PackageMissing, SandboxUnavailable) as error:
        raise ChildFailed("server", str(error), "Then try again.") from None


def _hub_environment(folder: str) -> dict[str, str]:
    """Set the hub's environment: a cache in the folder, no telemetry; plain HTTP, whose progress can be measured."""
    passed_on = {name: os.environ[name] for name in PASSED_ON if name in os.environ}
    silence = str(settings.DATASET_HUB_SILENCE_S)
    return passed_on | {
        "HOME": folder,
        "HF_HOME": f"{folder}/hub",
        "HF_HUB_ETAG_TIMEOUT": silence,
        "HF_HUB_DOWNLOAD_TIMEOUT": silence,
        "HF_HUB_DISABLE_TELEMETRY": "1",
        "HF_HUB_DISABLE_PROGRESS_BARS": "1",
        "HF_HUB_DISABLE_XET": "1",
    }
