"""What hosts bring for datasets: the tokenizers of models that they were asked about. Guarded by the host's token."""

from __future__ import annotations

from django.contrib.auth.decorators import login_not_required
from django.http import HttpRequest, HttpResponseBase, JsonResponse
from django.views.decorators.csrf import csrf_exempt

from controlplane.datasets import tokenizers
from controlplane.hardware.models import ModelInspection
from controlplane.http.errors import error_json
from controlplane.http.request_body import bearer
from controlplane.http.tokens import host_token_fits
from workers.contract.tokenizers import NoTokenizer


@csrf_exempt
@login_not_required
def tokenizer(request: HttpRequest, host: str, inspection_id: int) -> HttpResponseBase:
    """The body of workers.contract.tokenizers; its checksum is the one that the host's answer named."""
    if request.method != "POST":
        answer = error_json(405, "Only POST is allowed here.", where=request.path)
        answer.headers["Allow"] = "POST"
        return answer
    if not (token := bearer(request)):
        return error_json(401, "No token.", where="Authorization", fix="Send `Authorization: Bearer <host token>`.")
    if not host_token_fits(host, token):
        return error_json(403, f"This is not {host}'s token.", where="Authorization", fix="Use the host's own token.")
    asked = ModelInspection.objects.filter(pk=inspection_id, host__name=host).first()
    if asked is None or not tokenizers.named_in(asked):
        return error_json(403, "No such question to this host, or its answer names no tokenizer.", where="inspection")
    try:
        stored = tokenizers.store(asked, request)
    except NoTokenizer as error:
        return error_json(400, str(error), where="body", fix="Send the files that the answer was about.")
    return JsonResponse({"ok": True, "sha256": stored.sha256})
