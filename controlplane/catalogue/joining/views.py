"""The route by which a machine joins, authenticated only by its code, without a session or a token."""

import time
from typing import Annotated

import msgspec
from django.contrib.auth.decorators import login_not_required
from django.http import HttpRequest, HttpResponse, JsonResponse
from django.views.decorators.csrf import csrf_exempt

from controlplane.catalogue.joining import codes, exchange
from controlplane.platform.accounts import throttle
from controlplane.platform.http import addresses
from controlplane.platform.http.errors import error_json
from controlplane.platform.http.request_body import BadBody, body_of, decode
from workers.contract.wire.joining import VERSION

MAX_BODY_BYTES = 16 * 2**10
Short = Annotated[str, msgspec.Meta(max_length=300)]


class JoinBody(msgspec.Struct):
    code: Short
    version: Short
    name: Short = ""
    hostname: Short = ""


@csrf_exempt
@login_not_required
def join(request: HttpRequest) -> HttpResponse:
    """Exchange a join code for a host's token and its Redis address."""
    if request.method != "POST":
        response = error_json(405, "Only POST is allowed here.", where=request.path)
        response.headers["Allow"] = "POST"
        return response
    try:
        body = decode(body_of(request, MAX_BODY_BYTES), JoinBody)
    except BadBody as error:
        return error_json(error.status, error.what, where=error.where, fix=error.fix)
    address = addresses.of_client(request)
    # By address alone, so that nobody can block others from joining. A code that was made here is no guess, whatever
    # has become of it: many machines join at once from behind one proxy. With 160 random bits, codes can't be guessed.
    if codes.find(body.code) is None and throttle.begin_try(f"join from {address}", address) is None:
        problem = "Too many join codes were tried from this address."
        return error_json(429, problem, where="code", fix="Wait ten minutes.")
    try:
        result = exchange.join(body.code, name=body.name, hostname=body.hostname, version=body.version)
    except exchange.NotJoined as error:
        return error_json(error.status, error.what, where=error.where, fix=error.fix)
    fields = {"name": result.name, "token": result.token, "redis_url": result.redis_url}
    url = request.build_absolute_uri("/").rstrip("/")
    response = JsonResponse({**fields, "url": url, "version": VERSION, "time": time.time()})
    response.headers["Cache-Control"] = "no-store"
    return response
