"""The Secrets page, for admins only: keys of judges, players, W&B and MLflow, the model hub's token, and the store for
checkpoints. Stored values are never shown."""

from django.contrib import messages
from django.http import HttpRequest, HttpResponse
from django.shortcuts import get_object_or_404, redirect
from django.views.decorators.cache import never_cache
from django.views.decorators.debug import sensitive_post_parameters
from django.views.decorators.http import require_http_methods, require_POST

from controlplane.platform.accounts.models import Secret
from controlplane.platform.accounts.roles import admin_required, person
from controlplane.platform.accounts.secret_forms import SecretForm
from controlplane.platform.http.form_pages import form_page
from runs.pages.secrets import uses


@never_cache
@sensitive_post_parameters("key")
@admin_required
@require_http_methods(["GET", "POST"])
def secrets(request: HttpRequest) -> HttpResponse:
    form = SecretForm(request.POST or None)
    if request.method == "POST" and form.is_valid():
        secret = form.save_by(person(request))
        messages.success(request, f"{secret.name} was saved. {_effect(secret)}")
        return redirect("secrets")
    form.ask_for_key_again()
    context = {"shown": uses.secret_views(), "form": form}
    return form_page(request, "pages/secrets/secrets.html", context)


@never_cache
@sensitive_post_parameters("key")
@admin_required
@require_http_methods(["GET", "POST"])
def secret(request: HttpRequest, secret_id: int) -> HttpResponse:
    secret = get_object_or_404(Secret, pk=secret_id)
    name = secret.name  # the stored name, not the submitted one
    form = SecretForm(request.POST or None, instance=secret)
    if request.method == "POST" and form.is_valid():
        secret = form.save_by(person(request))
        messages.success(request, f"{secret.name} was saved. Runs that start from now on get the new value.")
        return redirect("secrets")
    form.ask_for_key_again()
    context = {"secret": secret, "name": name, "form": form}
    return form_page(request, "pages/secrets/secret.html", context)


@admin_required
@require_POST
def delete(request: HttpRequest, secret_id: int) -> HttpResponse:
    secret = get_object_or_404(Secret, pk=secret_id)
    secret.delete()
    messages.success(request, f"{secret.name} was deleted.")
    return redirect("secrets")


def _effect(secret: Secret) -> str:
    if secret.kind == Secret.Kind.STORE:
        return "Runs that start from now on store their checkpoints there, and datasets are uploaded."
    if secret.kind == Secret.Kind.ENGINE:
        return "Sources of machines can name it."
    return "Runs that name it get it when they start."
