"""The API for hosts, authenticated by an attempt's token. Supervisors call claim, dataset, corpus, sync, samples and
logs; reapers call reaped; launchers call not_launched."""

from collections.abc import Callable
from functools import wraps
from pathlib import Path
from typing import Any

import msgspec
from django.contrib.auth.decorators import login_not_required
from django.http import HttpRequest, HttpResponseBase, JsonResponse
from django.views.decorators.csrf import csrf_exempt

from controlplane.catalogue.datasets import storing
from controlplane.catalogue.datasets.models import CorpusVersion, DatasetVersion
from controlplane.platform.accounts import vault
from controlplane.platform.http.errors import error_json
from controlplane.platform.http.request_body import BadBody, bearer, body_of, decode, decode_exact, decode_lines
from controlplane.platform.http.streams import file_response
from controlplane.platform.http.tokens import attempt_token_fits
from runs.engine import deletions, hints
from runs.engine.artifacts import copies, signing
from runs.engine.jobs import archives
from runs.engine.models import Attempt
from runs.engine.served import conversation
from runs.engine.spec import mixed_version, searched_corpus
from runs.engine.states import ACTIVE
from runs.engine.warm import lifecycle
from runs.intake.host_api import claiming, ended_tokens, ingest, reaping, sync_route, uploads
from runs.intake.host_api.sync_route import SyncBody
from workers.contract.reports.lines import OutboxLine, Receipt
from workers.contract.run.jobs import ARCHIVE
from workers.contract.wire.artifacts import StoreRequest, Storing
from workers.contract.wire.documents import ContractError, from_dict, to_dict
from workers.contract.wire.names import LOG_NAMES

SYNC_LIMIT = 16 * 2**20
SAMPLES_LIMIT = 16 * 2**20
LOG_LIMIT = 8 * 2**20
SMALL_LIMIT = 64 * 2**10

View = Callable[..., HttpResponseBase]


class SamplesBody(msgspec.Struct):
    first_line: int
    lines: list[dict[str, Any]]


class DeletedBody(msgspec.Struct):
    path: str
    problem: str = ""


class StoreBody(msgspec.Struct):
    folder: str = ""
    """Folder of a checkpoint that the attempt needs; "" (from earlier supervisors) for the one it starts from."""


class StoredBody(msgspec.Struct):
    path: str
    state: Storing
    problem: str = ""
    manifest: str = ""


class NotLaunchedBody(msgspec.Struct):
    detail: str
    final: bool = False


class ReapedBody(msgspec.Struct):
    lock_held: bool
    receipt: dict[str, Any] | None = None
    lines: list[OutboxLine] = []
    detail: str = ""
    boot_id: str = ""


def for_attempt(method: str, *, answers_late: bool = False) -> Callable[[View], View]:
    """Guard a view: allow one method, compare the attempt's token in constant time, and return errors as JSON. With
    `answers_late`, the view also accepts requests long after the attempt's end and checks them itself."""

    def gate(view: View) -> View:
        @csrf_exempt
        @login_not_required
        @wraps(view)
        def guarded(request: HttpRequest, attempt_id: str, **rest: str) -> HttpResponseBase:
            if request.method != method:
                message = f"{request.method} is not allowed here."
                response = error_json(405, message, where="method", fix=f"Use {method}.")
                response.headers["Allow"] = method
                return response
            token = bearer(request)
            if not token:
                return error_json(401, "No token.", where="Authorization", fix="Send `Bearer <attempt token>`.")
            if not attempt_token_fits(attempt_id, token):
                return error_json(403, "The token doesn't belong to this attempt.", where="Authorization")
            try:
                # Without its run: the spec is large, and most calls, one per second and run, don't need it.
                attempt = ended_tokens.with_revoked().get(pk=attempt_id)
            except Attempt.DoesNotExist:
                return error_json(404, f"There is no attempt {attempt_id}.", where="attempt")
            problem, where = ended_tokens.problem(attempt, answers_late=answers_late)
            if problem:
                return error_json(403, problem, where=where)
            try:
                return view(request, attempt, **rest)
            except BadBody as error:
                return error_json(error.status, error.what, where=error.where, fix=error.fix)
            except ingest.BadLine as error:
                return error_json(400, f"{error}.", where=f"lines[{error.index}]")
            except ingest.NotStarted as error:
                return error_json(409, str(error), where="attempt")

        return guarded

    return gate


@for_attempt("POST")
def claim(request: HttpRequest, attempt: Attempt) -> HttpResponseBase:
    body = decode(body_of(request, SMALL_LIMIT), claiming.Claim)
    return JsonResponse(to_dict(claiming.claim(attempt, body)))


@for_attempt("GET")
def dataset(request: HttpRequest, attempt: Attempt) -> HttpResponseBase:
    version = attempt.run.dataset_version
    return _parquet(request, version, version.rows_path, "The dataset's file is gone.")


@for_attempt("GET")
def source(request: HttpRequest, attempt: Attempt, sha256: str) -> HttpResponseBase:
    version = mixed_version(attempt.run, sha256)
    if version is None:
        return error_json(404, "The run doesn't draw from this dataset, or the dataset is gone.", where="sha256")
    return _parquet(request, version, version.rows_path, "The dataset's file is gone.")


@for_attempt("GET")
def corpus(request: HttpRequest, attempt: Attempt, sha256: str) -> HttpResponseBase:
    version = searched_corpus(attempt.run, sha256)
    if version is None:
        return error_json(404, "The run doesn't search this corpus, or the corpus is gone.", where="sha256")
    return _parquet(request, version, version.path, "The corpus's file is gone.")


def _parquet(
    request: HttpRequest, version: DatasetVersion | CorpusVersion, path: Path, missing: str
) -> HttpResponseBase:
    try:
        file = path.open("rb")
    except FileNotFoundError:
        if storing.is_being_fetched(version):
            return error_json(503, "Its file is being fetched from the artifact store.", where=str(version))
        return error_json(404, missing, where=str(version))
    return file_response(request, file, "application/vnd.apache.parquet")


@for_attempt("POST")
def sync(request: HttpRequest, attempt: Attempt) -> HttpResponseBase:
    body = decode_lines(body_of(request, SYNC_LIMIT), SyncBody)
    ack = ingest.accept(attempt, body.lines, live=body.seen)
    document = sync_route.sync_response(
        ack,
        status=attempt.status,
        stop_mode=attempt.stop_mode,
        watched=attempt.run_id in hints.watched([attempt.run_id]),
        paced=body.paced,
    )
    if body.turns_after is not None:
        if warm := lifecycle.news(attempt.pk):
            document["warm"] = to_dict(warm)
        else:
            document["chat"] = to_dict(conversation.news(attempt, body.turns_after))
    return JsonResponse(document)


@for_attempt("POST")
def samples(request: HttpRequest, attempt: Attempt) -> HttpResponseBase:
    body = decode_lines(body_of(request, SAMPLES_LIMIT), SamplesBody)
    if body.first_line < 1:
        raise BadBody(400, "Lines are counted from 1.", where="first_line")
    return JsonResponse({"ack": uploads.samples(attempt, body.first_line, body.lines)})


@for_attempt("POST")
def logs(request: HttpRequest, attempt: Attempt, name: str) -> HttpResponseBase:
    if name not in LOG_NAMES:
        return error_json(404, f"There is no log named {name}.", where="name", fix=f"Use {', '.join(LOG_NAMES)}.")
    return JsonResponse(
        {"size": uploads.log(attempt, name, _byte_count(request, "offset"), body_of(request, LOG_LIMIT))}
    )


@for_attempt("POST")
def archive(request: HttpRequest, attempt: Attempt) -> HttpResponseBase:
    """Store a part of the archive that a download job is sending."""
    offset, archive_size = _byte_count(request, "offset"), _byte_count(request, "of")
    data = body_of(request, LOG_LIMIT)
    if offset + len(data) > archive_size:
        raise BadBody(400, "The part goes beyond the archive's end.", where="of")
    if attempt.run.kind != ARCHIVE or attempt.status not in ACTIVE:
        return error_json(409, "No archive is expected from this attempt.", where="attempt")
    try:
        return JsonResponse({"size": archives.store(attempt.run, offset, data, total_bytes=archive_size)})
    except archives.NoRoom as error:
        return error_json(413, str(error), where="of", fix="Free space on the control plane.")


def _byte_count(request: HttpRequest, name: str) -> int:
    text = request.GET.get(name, "")
    if not (text.isascii() and text.isdigit() and len(text) < 19):
        raise BadBody(400, f"`{name}` must be a number of bytes.", where=name)
    return int(text)


@for_attempt("POST")
def reaped(request: HttpRequest, attempt: Attempt) -> HttpResponseBase:
    body = decode_lines(body_of(request, SYNC_LIMIT), ReapedBody)
    try:
        receipt = from_dict(Receipt, body.receipt, at="receipt") if body.receipt is not None else None
    except ContractError as error:
        raise BadBody(400, f"{error}.", where="receipt") from None
    reaping.reaped(
        attempt, lock_held=body.lock_held, receipt=receipt, lines=body.lines, detail=body.detail, boot_id=body.boot_id
    )
    return JsonResponse({"ok": True})


@for_attempt("POST", answers_late=True)
def deleted(request: HttpRequest, attempt: Attempt) -> HttpResponseBase:
    """Record the result that a host reports for the deletion of one of the attempt's folders."""
    body = decode_exact(body_of(request, SMALL_LIMIT), DeletedBody)
    if not deletions.record_result(attempt, body.path, body.problem[:1000]):
        return error_json(409, "Nobody has requested this deletion.", where="path")
    return JsonResponse({"ok": True})


@for_attempt("POST", answers_late=True)
def store(request: HttpRequest, attempt: Attempt) -> HttpResponseBase:
    """Send the artifact store's address and a checkpoint's manifest, for processes that handle checkpoints."""
    body = decode_exact(body_of(request, SMALL_LIMIT), StoreBody)
    return _about_store(attempt, lambda: to_dict(copies.store_for(attempt, body.folder)))


@for_attempt("POST", answers_late=True)
def store_signature(request: HttpRequest, attempt: Attempt) -> HttpResponseBase:
    """Sign one request to the artifact store."""
    body = decode_exact(body_of(request, SMALL_LIMIT), StoreRequest)
    return _about_store(attempt, lambda: {"url": signing.sign(attempt, body)})


def _about_store(attempt: Attempt, build: Callable[[], dict[str, Any]]) -> HttpResponseBase:
    if attempt.claimed_at is None:
        return error_json(409, "The attempt was never claimed.", where="attempt")
    if refusal := _late_refusal(attempt):
        return refusal
    try:
        response = JsonResponse(build())
    except vault.NotGiven as error:
        return error_json(409, str(error), where="store")
    except signing.NotSigned as error:
        return error_json(403, f"The request to the artifact store isn't allowed: {error}.", where="path")
    response.headers["Cache-Control"] = "no-store"
    return response


@for_attempt("POST", answers_late=True)
def report_stored(request: HttpRequest, attempt: Attempt) -> HttpResponseBase:
    """Record the state of one of the attempt's copies in the artifact store."""
    body = decode_exact(body_of(request, SMALL_LIMIT), StoredBody)
    if refusal := _late_refusal(attempt):
        return refusal
    if not copies.record(attempt, body.path, body.state, problem=body.problem[:1000], manifest=body.manifest[:64]):
        return error_json(409, "The attempt has no such checkpoint.", where="path")
    return JsonResponse({"ok": True})


def _late_refusal(attempt: Attempt) -> HttpResponseBase | None:
    """Return the error for a request long after the attempt's end, unless upkeep or somebody's deletion request expects
    it; return None if the request is allowed."""
    problem, field = ended_tokens.problem(attempt)
    if not problem or copies.is_expected(attempt) or deletions.awaits_result(attempt):
        return None
    return error_json(403, problem, where=field)


@for_attempt("POST")
def not_launched(request: HttpRequest, attempt: Attempt) -> HttpResponseBase:
    body = decode(body_of(request, SMALL_LIMIT), NotLaunchedBody)
    claiming.not_launched(attempt, body.detail, final=body.final)
    return JsonResponse({"ok": True})
