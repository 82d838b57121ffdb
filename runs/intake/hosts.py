"""The API for hosts, authenticated by the host's token: announcements, leaving, model inspections and tokenizers."""

import time
from collections.abc import Callable
from functools import wraps
from typing import Any, Concatenate, ParamSpec

from django.contrib.auth.decorators import login_not_required
from django.db import transaction
from django.http import HttpRequest, HttpResponseBase, JsonResponse
from django.utils import timezone
from django.views.decorators.csrf import csrf_exempt

from controlplane.catalogue.datasets import tokenizers
from controlplane.catalogue.hardware.inventory import count
from controlplane.catalogue.hardware.models import Host, ModelInspection
from controlplane.catalogue.joining import credentials
from controlplane.catalogue.joining.models import HostCredential
from controlplane.platform.http.errors import error_json
from controlplane.platform.http.request_body import BadBody, bearer, decode
from runs.engine import disk
from runs.engine.hosts import announcements
from runs.engine.machines import leaving
from workers.contract.wire.joining import HOST_NAME, HOST_NAME_WORDS, REVOKED, Leaving, version_problem
from workers.contract.wire.tokenizers import NoTokenizer

P = ParamSpec("P")
Document = dict[str, Any]


def _from_host(view: Callable[..., HttpResponseBase]) -> Callable[..., HttpResponseBase]:
    """Guard a view for programs: require POST and a bearer token, without a session or a CSRF token."""

    @wraps(view)
    def guarded(request: HttpRequest, *args: Any, **kwargs: Any) -> HttpResponseBase:
        if request.method != "POST":
            response = error_json(405, "Only POST is allowed here.", where=request.path)
            response["Allow"] = "POST"
            return response
        if not bearer(request):
            return error_json(401, "No token.", where="Authorization", fix="Send `Authorization: Bearer <host token>`.")
        return view(request, *args, **kwargs)

    return csrf_exempt(login_not_required(guarded))


def _document(
    view: Callable[Concatenate[HttpRequest, Document, P], HttpResponseBase],
) -> Callable[..., HttpResponseBase]:
    """Guard a view like `_from_host`, and pass it the body, which must be one JSON object."""

    def guarded(request: HttpRequest, /, *args: P.args, **kwargs: P.kwargs) -> HttpResponseBase:
        try:
            document = decode(request.body, Document)
        except (BadBody, RecursionError):
            return error_json(400, "The body is not a JSON object.", where="body", fix="Send one JSON object.")
        return view(request, document, *args, **kwargs)

    return wraps(view)(_from_host(guarded))


def _refuse_token(name: str, token: str) -> JsonResponse:
    if credentials.was_revoked(name, token):
        fix = "Join again with a new code from the Hardware page."
        return error_json(403, f"The credentials of {name} were revoked.", where=REVOKED, fix=fix)
    return error_json(
        403, f"The token doesn't belong to {name}.", where="Authorization", fix="Use the host's own token."
    )


@_document
def announce(request: HttpRequest, document: Document) -> HttpResponseBase:
    name = document.get("name")
    if not isinstance(name, str) or not HOST_NAME.fullmatch(name):
        return error_json(400, "The host name is missing or invalid.", where="name", fix=f"Use {HOST_NAME_WORDS}.")
    credential = credentials.matching(name, bearer(request))
    if credential is None:
        return _refuse_token(name, bearer(request))
    inventory, schema = document.get("inventory"), document.get("trainer_schema")
    if not isinstance(inventory, dict):
        return error_json(
            400, "The inventory is not an object.", where="inventory", fix="Send the one of workers.host.announce."
        )
    if schema is not None and not _is_schema(schema):
        fix = "Send null, or the output of workers.trainer.describe."
        return error_json(400, "The schema doesn't describe a trainer.", where="trainer_schema", fix=fix)
    if announcements.is_another_machine(name, inventory, timezone.now()):
        credentials.note_copy(credential)
        fix = "Join each machine with a separate code. After a restart, this machine is accepted within a minute."
        return error_json(
            409, f"Another machine announces itself as {name}, with the same token.", where="name", fix=fix
        )
    if problem := _note_version(credential, document):
        announcements.refuse(name)
        return error_json(426, problem, where="version", fix="Runs on the host continue.")
    host = announcements.accept(name, inventory, schema, timezone.now())
    if isinstance(sizes := document.get("run_sizes"), dict):
        disk.store_measurement(host, {run: size for run, value in sizes.items() if (size := count(value)) is not None})
    is_watched = announcements.is_watched(host, timezone.now())
    return JsonResponse({"ok": True, "want_schema": _wants_schema(host), "watched": is_watched})


@_document
def leave(request: HttpRequest, document: Document) -> HttpResponseBase:
    """Let a host leave unless a run needs it, or only drain it if it is being stopped. Leaving ends its token."""
    name = document.get("name")
    if not isinstance(name, str) or not credentials.is_valid(name, bearer(request)):
        return _refuse_token(str(name)[:64], bearer(request))
    try:
        leaving_kind = Leaving(str(document.get("how")))
    except ValueError:
        fix = f"Use one of {', '.join(Leaving)}."
        return error_json(400, "The way in which the host leaves is missing or unknown.", where="how", fix=fix)
    if problem := leaving.leave(name, leaving_kind):
        return error_json(409, problem, where="host", fix="Stay, and ask again later.")
    return JsonResponse({"ok": True})


def _note_version(credential: HostCredential, document: Document) -> str:
    """Store the host's version and clock skew. Return the problem if its version can't be served, or ""."""
    version, clock = document.get("version"), document.get("time")
    version = version if isinstance(version, str) else ""
    skew = float(clock) - time.time() if isinstance(clock, int | float) and abs(clock) < 1e11 else None
    problem = version_problem(version) if version else ""
    credentials.note_use(credential, version=version, skew_s=skew, refusal=problem)
    return problem


def _is_schema(schema: object) -> bool:
    """Return whether the schema has the structure from which forms are built, since a host may have bugs."""
    if not isinstance(schema, dict) or not isinstance(schema.get("defaults", {}), dict):
        return False
    fields = schema.get("fields")
    return isinstance(fields, list) and all(
        isinstance(field, dict) and isinstance(field.get("name"), str) and isinstance(field.get("choices") or [], list)
        for field in fields
    )


def _wants_schema(host: Host) -> bool:
    """Return whether the host's trainer is ready but its schema is missing or belongs to another TRL version."""
    if host.inventory.get("trainer") != "ready":
        return False
    versions = host.inventory.get("versions") or {}
    return host.trainer_schema is None or (
        isinstance(versions, dict) and bool(versions.get("trl")) and host.trainer_schema.get("trl") != versions["trl"]
    )


@_document
def inspection(request: HttpRequest, document: Document, inspection_id: int) -> HttpResponseBase:
    answer = document.get("answer")
    with transaction.atomic():
        row = ModelInspection.objects.select_related("host").filter(pk=inspection_id).first()
        # A missing row and a wrong token get the same response, so that ids can't be probed.
        if row is None or not credentials.is_valid(row.host.name, bearer(request)):
            return error_json(403, "This host has no such inspection.", where="Authorization")
        if not isinstance(answer, dict):
            return error_json(400, "The answer is not an object.", where="answer", fix="Send one JSON object.")
        # The first answer is kept, so a repeated delivery changes nothing.
        ModelInspection.objects.filter(pk=row.pk, answered_at=None).update(answer=answer, answered_at=timezone.now())
        row.refresh_from_db(fields=["answer"])
    return JsonResponse({"ok": True, "want_tokenizer": tokenizers.is_missing(row)})


@_from_host
def tokenizer(request: HttpRequest, host: str, inspection_id: int) -> HttpResponseBase:
    """Store an uploaded tokenizer, whose checksum must match the one in the result of the host's inspection."""
    if not credentials.is_valid(host, bearer(request)):
        return _refuse_token(host, bearer(request))
    row = ModelInspection.objects.filter(pk=inspection_id, host__name=host).first()
    if row is None or not tokenizers.named_in(row):
        return error_json(
            403, "This host has no such inspection, or the inspection found no tokenizer.", where="inspection"
        )
    try:
        stored_tokenizer = tokenizers.store(row, request)
    except NoTokenizer as error:
        return error_json(400, str(error), where="body", fix="Send the files that the inspection found.")
    return JsonResponse({"ok": True, "sha256": stored_tokenizer.sha256})
