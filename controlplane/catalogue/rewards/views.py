"""Pages of the reward library and of a version, and the fragments that the editor requests."""

from django.http import HttpRequest, HttpResponse
from django.shortcuts import render
from django.views.decorators.http import require_GET, require_POST

from controlplane.catalogue.rewards import balance as balances
from controlplane.catalogue.rewards.forms import editor_from, new_row
from controlplane.catalogue.rewards.library import groups
from controlplane.catalogue.rewards.models import RewardVersion
from controlplane.catalogue.versioned import views
from controlplane.catalogue.versioned.differences import Difference, part_differences, setting_difference
from controlplane.platform.accounts.roles import operator_required, person
from controlplane.platform.templatetags.figures import setting
from workers.contract.run.row_names import rows_of
from workers.contract.run.spec import RewardSpec
from workers.rewards.library import LIBRARY


@require_GET
def library(request: HttpRequest) -> HttpResponse:
    return render(request, "catalogue/rewards/library.html", {"groups": groups(person(request)), "count": len(LIBRARY)})


@operator_required
@require_GET
def component(request: HttpRequest) -> HttpResponse:
    """Return an editor row for a function of the library; it replaces the row ?instead=PREFIX, if given."""
    key = request.GET.get("function", "")
    reward = LIBRARY.get(key)
    if reward is None or (reward.admin_only and not person(request).may_administer):
        return HttpResponse("This reward doesn't exist, or you may not add it.", status=404, content_type="text/plain")
    replaced_key = request.GET.get("instead", "")
    replaced = (
        {name.removeprefix(f"{replaced_key}-"): value for name, value in request.GET.items()} if replaced_key else None
    )
    used_names = {str(value) for name, value in request.GET.items() if name.endswith("-name")}
    index = request.GET.get("place", "")
    if not (index.isdecimal() and len(index) < 4):
        index = str(len(request.GET.getlist("row")))
    context = {"component": new_row(key, used_names, replaced), "index": index, "open": not replaced_key}
    return render(request, "catalogue/rewards/_component.html", context)


@operator_required
@require_POST
def balance(request: HttpRequest) -> HttpResponse:
    context = {"balance": editor_from(request.POST).balance(), "fixable": True}
    return render(request, "catalogue/rewards/_balance.html", context)


def version_page(request: HttpRequest, version: RewardVersion) -> HttpResponse:
    return views.version_page(request, version, balance=balances.balance(version.specs, version.aggregation))


def differences(before: RewardVersion, after: RewardVersion) -> list[Difference]:
    return [
        *part_differences(before, after, suffix=_weight, settings=_settings),
        *setting_difference("aggregation", before.aggregation, after.aggregation),
        *setting_difference("failure threshold", before.failed_share, after.failed_share),
    ]


def _weight(spec: RewardSpec) -> str:
    limit = f", only {rows_of(spec.applies_to)}" if spec.applies_to else ""
    return f" × {setting(spec.weight)}{', each turn' if spec.per_turn else ''}{limit}"


def _settings(old_spec: RewardSpec, new_spec: RewardSpec) -> list[Difference]:
    return [
        *setting_difference(f"{new_spec.name} weight", old_spec.weight, new_spec.weight),
        *setting_difference(f"{new_spec.name} scores", _scored(old_spec), _scored(new_spec)),
        *setting_difference(f"{new_spec.name} applies to", rows_of(old_spec.applies_to), rows_of(new_spec.applies_to)),
    ]


def _scored(spec: RewardSpec) -> str:
    return "each turn" if spec.per_turn else "the whole completion"
