"""Endpoints for containers, load balancers and Prometheus: /healthz, /readyz and /metrics."""

import hmac

from django.conf import settings
from django.contrib.auth.decorators import login_not_required
from django.http import HttpRequest, HttpResponse, JsonResponse
from django.utils import timezone
from django.views.decorators.cache import never_cache
from django.views.decorators.http import require_GET
from prometheus_client import CONTENT_TYPE_LATEST

from controlplane.platform.accounts import api_tokens
from controlplane.platform.accounts.models import ApiScope
from controlplane.platform.http.errors import error_json
from controlplane.platform.http.request_body import bearer
from runs.engine.monitoring import readiness
from runs.pages.monitoring.metrics import exposition


@login_not_required
@never_cache
@require_GET
def healthz(request: HttpRequest) -> JsonResponse:
    """Report only that this web process is alive, since restarting it would not help any other service."""
    return JsonResponse({"ok": True})


@login_not_required
@never_cache
@require_GET
def readyz(request: HttpRequest) -> JsonResponse:
    """Report whether the control plane is ready, or respond with 503 and the problems."""
    problems = readiness.problems()
    return JsonResponse({"ready": not problems, "problems": problems}, status=503 if problems else 200)


@login_not_required
@never_cache
@require_GET
def metrics(request: HttpRequest) -> HttpResponse:
    """Send Prometheus metrics to an API token with read scope or the installation's metrics token."""
    token = bearer(request)
    if not _is_ours(token):
        row = api_tokens.find(token)
        if row is None or not api_tokens.allows(row, ApiScope.READ):
            fix = "Send `Bearer` and an API token with read scope, or the content of CONTROLPLANE_METRICS_TOKEN_FILE."
            return error_json(401, "No valid token for metrics.", where="Authorization", fix=fix)
    return HttpResponse(exposition(timezone.now()), content_type=CONTENT_TYPE_LATEST)


def _is_ours(token: str) -> bool:
    metrics_token: str = settings.METRICS_TOKEN
    return bool(metrics_token) and hmac.compare_digest(metrics_token.encode(), token.encode("utf-8", "surrogateescape"))
