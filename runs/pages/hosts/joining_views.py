"""Adding a host and revoking one: pages for operators."""

from urllib.parse import urlsplit

from django import forms
from django.contrib import messages
from django.core.validators import RegexValidator
from django.http import HttpRequest, HttpResponse, HttpResponseBase
from django.shortcuts import get_object_or_404, redirect, render
from django.utils import timezone
from django.views.decorators.http import require_http_methods, require_safe

from controlplane.catalogue.hardware.queries import hosts_for, known_host_for
from controlplane.catalogue.joining import codes, credentials, host_redis
from controlplane.catalogue.joining.models import JoinCode
from controlplane.platform.accounts.roles import operator_required, person
from controlplane.platform.http.middleware import STOP_POLLING
from runs.engine.hosts import actions
from runs.engine.hosts.view import host_views
from runs.engine.sentences import counted
from runs.pages.hosts.host_card import these_end
from workers.contract.wire.joining import HOST_NAME, HOST_NAME_WORDS, is_loopback

AFTER_EMBEDDED = "It runs on the same machine as the control plane and gets a new token at the next start."
AFTER_JOINED = "This can’t be undone. The machine can join again with a new code, even under the same name."


class AddHostForm(forms.Form):
    name = forms.CharField(
        required=False,
        max_length=64,
        help_text="Leave empty to use the machine's own name.",
        validators=[RegexValidator(rf"\A{HOST_NAME.pattern}\Z", f"Use {HOST_NAME_WORDS}.")],
        widget=forms.TextInput(attrs={"autocomplete": "off", "autofocus": True}),
    )

    def clean_name(self) -> str:
        name: str = self.cleaned_data["name"]
        if name and credentials.active(name) is not None:
            raise forms.ValidationError(
                f"A host named {name} has already joined. Revoke it first, or use another name."
            )
        return name


@require_http_methods(["GET", "HEAD", "POST"])
@operator_required
def add(request: HttpRequest) -> HttpResponseBase:
    """Show the form for adding a host; POST creates a join code and shows its command once."""
    form = AddHostForm(request.POST if request.method == "POST" else None)
    problem = host_redis.problem() or (no_users() if request.method == "POST" else "")
    if request.method != "POST" or problem or not form.is_valid():
        status = 422 if request.method == "POST" else 200
        return render(request, "pages/hosts/add.html", {"form": form, "problem": problem}, status=status)
    row, code = codes.create(form.cleaned_data["name"], by=person(request))
    url = request.build_absolute_uri("/").rstrip("/")
    parts = urlsplit(url)
    context = {
        "row": row,
        "command": codes.command(url, code),
        "minutes": codes.VALID_FOR.total_seconds() / 60,
        "only_here": is_loopback(parts.hostname or "") and url,
        "unencrypted": parts.scheme == "http" and not is_loopback(parts.hostname or "") and url,
    }
    response = render(request, "pages/hosts/added.html", context)
    response.headers["Cache-Control"] = "no-store"
    return response


def no_users() -> str:
    """Return why hosts can't get their own Redis users, or "" if they can."""
    try:
        host_redis.check()
    except host_redis.NoUser as error:
        return str(error)
    return ""


@require_safe
@operator_required
def join_code_state(request: HttpRequest, code_id: int) -> HttpResponse:
    """Render the state of a join code; the page that shows its command polls it."""
    row = get_object_or_404(JoinCode, pk=code_id)
    host = next(iter(host_views(hosts_for(request).filter(name=row.used_by))), None) if row.used_by else None
    has_expired = row.used_at is None and row.expires_at <= timezone.now()
    status = STOP_POLLING if has_expired or (host is not None and host.fresh) else 200
    return render(request, "pages/hosts/_added.html", {"row": row, "host": host, "over": has_expired}, status=status)


@require_http_methods(["GET", "HEAD", "POST"])
@operator_required
def revoke(request: HttpRequest, host_id: int) -> HttpResponseBase:
    """Revoke a host's credentials, after a page that explains the consequences."""
    host = known_host_for(request, host_id)
    credential = credentials.active(host.name)
    if credential is None:
        messages.info(request, f"{host.name} has no credentials, so nothing was changed.")
        return redirect("hardware")
    if request.method == "POST":
        ended_count, note = actions.revoke(host, person(request))
        runs = f" {counted(ended_count, 'run')} on it ended." if ended_count else ""
        messages.success(request, f"The credentials of {host.name} were revoked.{runs} {note}".strip())
        return redirect("hardware")
    attempts = actions.on_host(host)
    context = {
        "host": host,
        "credential": credential,
        "attempts": attempts,
        "these_end": these_end(len(attempts)),
        "afterwards": AFTER_EMBEDDED if credential.embedded else AFTER_JOINED,
    }
    return render(request, "pages/hosts/revoke.html", context)
