"""Static files: collected with a compressed copy of each, and served by a synchronous middleware.

The package's own middleware is async and would cost each request two more thread switches.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from asgiref.sync import async_to_sync
from django.http import HttpRequest
from django.http.response import HttpResponseBase
from django.templatetags.static import static
from django.utils.decorators import sync_only_middleware
from servestatic.middleware import ServeStaticMiddleware
from servestatic.storage import CompressedStaticFilesStorage

from controlplane import packagefinder

GetResponse = Callable[[HttpRequest], HttpResponseBase]


@sync_only_middleware
def static_files(get_response: GetResponse) -> GetResponse:
    package = Files(_nothing)

    def answer(request: HttpRequest) -> HttpResponseBase:
        file = package.files.get(request.path_info)
        if file is None:
            return get_response(request)
        response: HttpResponseBase = async_to_sync(package.aserve)(file, request)
        return response

    return answer


class Files(ServeStaticMiddleware):  # type: ignore[misc]  # servestatic has no types
    def immutable_file_test(self, path: str, url: str) -> bool:
        """Files with their version in the URL. The package looks for hashes in names, whatever its setting."""
        return url.startswith((static(packagefinder.PLOTLY_FOLDER), static(packagefinder.ACE_FOLDER)))


async def _nothing(request: HttpRequest) -> HttpResponseBase:
    raise AssertionError("requests for other paths go to Django")


class StaticStorage(CompressedStaticFilesStorage):  # type: ignore[misc]  # servestatic has no types
    """Compresses only changed files: every start collects, and Plotly (4.8 MB, 1.5 MB compressed) takes a second."""

    def post_process(self, paths: dict[str, Any], dry_run: bool = False, **options: Any) -> Iterator[Any]:
        changed = {name: entry for name, entry in paths.items() if not self._compressed(name)}
        yield from super().post_process(changed, dry_run=dry_run, **options)

    def _compressed(self, name: str) -> bool:
        file = Path(self.path(name))
        copy = file.with_name(f"{file.name}.gz")
        return copy.exists() and copy.stat().st_mtime >= file.stat().st_mtime
