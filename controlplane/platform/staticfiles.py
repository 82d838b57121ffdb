"""Static files, which are collected with compressed copies and served by synchronous middleware.

Every address contains the version of the collected files, so browsers keep the files until a new version is collected.
The servestatic package's own middleware is async and would cost each request two more thread switches.
"""

import hashlib
import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from asgiref.sync import async_to_sync
from django.conf import settings
from django.core.management import call_command
from django.http import HttpRequest
from django.http.response import HttpResponseBase
from django.utils.decorators import sync_only_middleware
from servestatic.middleware import ServeStaticMiddleware
from servestatic.storage import CompressedStaticFilesStorage

from controlplane.platform import packagefinder

_VERSIONED = re.compile(r"\A/static/[0-9a-f]{12}/")
GetResponse = Callable[[HttpRequest], HttpResponseBase]


@sync_only_middleware
def static_files(get_response: GetResponse) -> GetResponse:
    package = Files(_unreachable)

    def respond(request: HttpRequest) -> HttpResponseBase:
        # With this version's prefix: a page that was opened with an earlier version still loads its files.
        file = package.files.get(_VERSIONED.sub(settings.STATIC_URL, request.path_info))
        if file is None:
            return get_response(request)
        response: HttpResponseBase = async_to_sync(package.aserve)(file, request)
        return response

    return respond


class Files(ServeStaticMiddleware):  # type: ignore[misc]  # servestatic has no types
    def immutable_file_test(self, path: str, url: str) -> bool:
        """Return True for every file if static URLs are versioned, instead of looking for a hash in the name."""
        return bool(settings.STATIC_VERSION)


def collect(report: Callable[[str], None]) -> None:
    """Collect the static files if they have changed. Programs that start later use the new version."""
    stamp = Path(settings.STATIC_ROOT) / settings.STATIC_STAMP
    fingerprint = _fingerprint()
    if stamp.exists() and stamp.read_text() == fingerprint:
        return
    report("Collecting static files …")
    call_command("collectstatic", verbosity=0, interactive=False)
    stamp.write_text(fingerprint)


def _fingerprint() -> str:
    base: Path = settings.BASE_DIR
    digest = hashlib.sha256((base / "controlplane/setup/bootstrap/locks/web.lock").read_bytes())
    digest.update((base / "controlplane" / "settings.py").read_bytes())
    digest.update(packagefinder.PLOTLY.encode())
    for path in sorted((base / "frontend" / "static").rglob("*")):
        if path.is_file():
            stat = path.stat()
            digest.update(f"{path.relative_to(base)} {stat.st_size} {stat.st_mtime_ns}\n".encode())
    return digest.hexdigest()


async def _unreachable(request: HttpRequest) -> HttpResponseBase:
    raise AssertionError("requests for other paths go to Django")


class StaticStorage(CompressedStaticFilesStorage):  # type: ignore[misc]  # servestatic has no types
    """Storage that compresses only changed files: every start collects, and Plotly (4.8 MB) takes a second."""

    def post_process(self, paths: dict[str, Any], dry_run: bool = False, **options: Any) -> Iterator[Any]:
        changed_files = {name: entry for name, entry in paths.items() if not self._is_compressed(name)}
        yield from super().post_process(changed_files, dry_run=dry_run, **options)

    def _is_compressed(self, name: str) -> bool:
        file = Path(self.path(name))
        copy = file.with_name(f"{file.name}.gz")
        return copy.exists() and copy.stat().st_mtime >= file.stat().st_mtime
