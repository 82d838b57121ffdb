"""Serving a model with a key, and the address on which a host's served models may listen."""

from typing import Any

from django import forms
from django.contrib import messages
from django.http import HttpRequest, HttpResponse, HttpResponseBase
from django.shortcuts import redirect, render
from django.views.decorators.http import require_http_methods

from controlplane.catalogue.hardware.models import Host
from controlplane.catalogue.hardware.queries import host_for
from controlplane.platform.accounts.roles import admin_required, person
from controlplane.platform.http.form_pages import form_page
from runs.engine.artifacts import saved_models as catalogue
from runs.engine.artifacts.saved_models import SavedModel
from runs.engine.scheduling.limits import QueueFull
from runs.engine.served import endpoint, starting
from runs.pages.served import page
from runs.pages.served.forms import ServeForm
from workers.contract.wire.documents import ContractError


class AddressForm(forms.ModelForm):  # type: ignore[type-arg]  # subscriptable for the type checker only
    serve_address = forms.GenericIPAddressField(
        label="IP address",
        required=False,
        help_text="One of the host's addresses, or 0.0.0.0 for all of them. Leave empty to allow only 127.0.0.1.",
        widget=forms.TextInput(attrs={"autocomplete": "off"}),
    )

    class Meta:
        model = Host
        fields = ("serve_address",)

    def clean_serve_address(self) -> str | None:
        return self.cleaned_data["serve_address"] or None


@require_http_methods(["GET", "HEAD", "POST"])
@admin_required
def serve(request: HttpRequest, event_id: int) -> HttpResponseBase:
    """Show the form for serving a model; POST starts the model and shows its key once."""
    model = catalogue.model_for(request, event_id)
    form = ServeForm(starting.host_for(model.checkpoint), request.POST if request.method == "POST" else None)
    key = ""
    if form.is_valid():
        address, idle_minutes = form.cleaned_data["address"], float(form.cleaned_data["idle_minutes"])
        try:
            _, key = starting.start_with_key(
                model.checkpoint, person(request), engine=form.device, address=address, idle_minutes=idle_minutes
            )
        except (ContractError, QueueFull) as error:
            form.add_error(None, f"The model can't be served: {error}.")
    response = _page(request, model, form, key, status=422 if form.is_bound and not key else 200)
    response["Cache-Control"] = "no-store"
    return response


def _page(request: HttpRequest, model: SavedModel, form: ServeForm, key: str, status: int) -> HttpResponse:
    run = starting.live_with_key(model.checkpoint)
    context: dict[str, Any] = {
        "model": model,
        "event_id": model.checkpoint.event.pk,
        "form": form,
        "key": key,
        "served": page.state_of_run(run) if run else None,
        "endpoint": endpoint.of(run) if run else None,
    }
    if request.headers.get("HX-Request") == "true":
        return render(request, "pages/served/_endpoint.html", context)
    return render(request, "pages/served/serve.html", context, status=status)


@require_http_methods(["GET", "HEAD", "POST"])
@admin_required
def address(request: HttpRequest, host_id: int) -> HttpResponseBase:
    """Set the address on which served models may listen on a host, in addition to loopback."""
    host = host_for(request, host_id)
    form = AddressForm(request.POST if request.method == "POST" else None, instance=host)
    if request.method == "POST" and form.is_valid():
        host.save(update_fields=["serve_address"])
        current_address = host.serve_address or "127.0.0.1 only"
        messages.success(request, f"Models on {host.name} may be served on {current_address}.")
        return redirect("hardware")
    return form_page(request, "pages/hosts/serving.html", {"host": host, "form": form})
