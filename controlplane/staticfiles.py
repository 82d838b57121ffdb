"""Static files, as a synchronous middleware: the package's own is async, and would cost each request two more hops."""

from __future__ import annotations

from collections.abc import Callable

from asgiref.sync import async_to_sync
from django.http import HttpRequest
from django.http.response import HttpResponseBase
from django.templatetags.static import static
from django.utils.decorators import sync_only_middleware
from servestatic.middleware import ServeStaticMiddleware

from controlplane import acefinder, plotlyfinder

GetResponse = Callable[[HttpRequest], HttpResponseBase]


@sync_only_middleware
def static_files(get_response: GetResponse) -> GetResponse:
    package = Files(_nothing)

    def answer(request: HttpRequest) -> HttpResponseBase:
        found = package.files.get(request.path_info)
        if found is None:
            return get_response(request)
        response: HttpResponseBase = async_to_sync(package.aserve)(found, request)
        return response

    return answer


class Files(ServeStaticMiddleware):  # type: ignore[misc]  # servestatic has no types
    def immutable_file_test(self, path: str, url: str) -> bool:
        """What has its version in its address. The package looks for hashes in names, whatever its setting says."""
        return url.startswith((static(plotlyfinder.FOLDER), static(acefinder.FOLDER)))


async def _nothing(request: HttpRequest) -> HttpResponseBase:
    raise AssertionError("what is no static file goes to Django")
