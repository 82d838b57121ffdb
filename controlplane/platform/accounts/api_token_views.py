"""The API tokens page: create (shown once), list and revoke tokens. Admins also see and revoke those of others."""

from django.contrib import messages
from django.http import HttpRequest, HttpResponse
from django.shortcuts import get_object_or_404, redirect
from django.views.decorators.cache import never_cache
from django.views.decorators.http import require_http_methods, require_POST

from controlplane.platform.accounts import api_tokens
from controlplane.platform.accounts.forms import ApiTokenForm
from controlplane.platform.accounts.models import ApiToken, ApiTokenAct
from controlplane.platform.accounts.roles import person
from controlplane.platform.http.form_pages import form_page, keep_once, take_once

MAX_ACTS_SHOWN = 50
SESSION_KEY = "API token"


@never_cache
@require_http_methods(["GET", "HEAD", "POST"])
def tokens(request: HttpRequest) -> HttpResponse:
    user = person(request)
    form = ApiTokenForm(user, request.POST if request.method == "POST" else None)
    if request.method == "POST" and form.is_valid():
        fields = form.cleaned_data
        try:
            _, plaintext = api_tokens.make(user, fields["name"], fields["scope"], days=fields["days"])
        except api_tokens.TooMany as error:
            form.add_error(None, str(error))
        else:
            keep_once(request, SESSION_KEY, plaintext)
            return redirect("api_tokens")
    visible = api_tokens.seen_by(user)
    context = {
        "form": form,
        "tokens": api_tokens.valid_tokens(visible).select_related("user"),
        "text": "".join(take_once(request, SESSION_KEY)),
        "acts": ApiTokenAct.objects.filter(token__in=visible).select_related("token__user", "by")[:MAX_ACTS_SHOWN],
    }
    return form_page(request, "platform/accounts/api_tokens.html", context)


@require_POST
def revoke(request: HttpRequest, token_id: int) -> HttpResponse:
    user = person(request)
    token = get_object_or_404(api_tokens.seen_by(user), pk=token_id)
    if api_tokens.revoke(ApiToken.objects.filter(pk=token.pk), user):
        messages.success(request, f"{token.name} is revoked. Programs that use it are now refused.")
    else:
        messages.info(request, f"{token.name} was already revoked.")
    return redirect("api_tokens")
