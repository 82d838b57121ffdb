"""The evaluations page of a run: launching evaluations, and comparing checkpoints with the starting model."""

from typing import Any

from django import forms
from django.contrib import messages
from django.http import HttpRequest, HttpResponse, HttpResponseBase
from django.shortcuts import redirect, render
from django.views.decorators.http import require_http_methods

from controlplane.catalogue.datasets.models import DatasetVersion
from controlplane.catalogue.datasets.queries import ready_versions
from controlplane.catalogue.rewards.models import RewardVersion
from controlplane.catalogue.versioned.queries import offered_versions
from controlplane.platform.accounts.roles import operator_required, person
from controlplane.platform.http.middleware import STOP_POLLING
from runs.engine import checkpoints, queries
from runs.engine.checkpoints import Checkpoint
from runs.engine.models import Run
from runs.engine.scheduling.limits import QueueFull
from runs.insight.evaluations import results, starting
from runs.insight.evaluations.starting import EvaluationSetup
from workers.contract.wire.documents import ContractError


class EvaluationDatasetChoice(forms.ModelChoiceField):  # type: ignore[type-arg]  # not subscriptable when it runs
    def label_from_instance(self, obj: DatasetVersion) -> str:
        return f"{obj} · {obj.validation_rows:,} validation rows"


class EvaluationForm(forms.Form):
    def __init__(self, request: HttpRequest, run: Run, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.usable = checkpoints.models_of(run)
        dataset_versions = ready_versions(request).filter(validation_rows__gt=0)
        default_version = dataset_versions.filter(pk=run.dataset_version_id).first() or dataset_versions.first()
        self.held_out = default_version.validation_rows if default_version else 0
        self.fields["checkpoints"] = forms.MultipleChoiceField(
            choices=[(str(checkpoint.event.pk), starting.label_of(checkpoint)) for checkpoint in self.usable],
            initial=[str(checkpoint.event.pk) for checkpoint in self.usable[:1]],
            widget=forms.CheckboxSelectMultiple,
        )
        self.fields["dataset"] = EvaluationDatasetChoice(
            queryset=dataset_versions,
            initial=default_version,
            empty_label=None,
            help_text="Validation rows are never used for training.",
        )
        self.fields["prompts"] = forms.IntegerField(
            min_value=1,
            initial=min(64, self.held_out),
            help_text="Sampled from the dataset's validation rows with the run's seed.",
        )
        self.fields["generations"] = forms.IntegerField(
            min_value=1,
            max_value=starting.MAX_GENERATIONS,
            initial=starting.GENERATIONS,
            label="Completions per prompt",
            help_text="This is the k in pass@k.",
        )
        self.fields["rewards"] = forms.ModelChoiceField(
            queryset=offered_versions(RewardVersion),
            initial=run.reward_version_id,
            label="Reward config",
            empty_label=None,
            help_text="A config other than the run's can show what the run's rewards miss.",
        )
        self.fields["temperature"] = forms.FloatField(
            min_value=0.01,
            max_value=2.0,
            initial=starting.temperature_of(run),
            help_text="Defaults to the run's temperature. Near 0, the most likely tokens are chosen.",
        )

    def clean(self) -> dict[str, Any]:
        data = super().clean() or self.cleaned_data
        version, prompts = data.get("dataset"), data.get("prompts")
        if version and prompts and prompts > version.validation_rows:
            self.add_error("prompts", f"{version} has {version.validation_rows:,} validation rows.")
        return data

    def setup(self) -> EvaluationSetup:
        data = self.cleaned_data
        return EvaluationSetup(
            data["dataset"], data["prompts"], data["generations"], data["rewards"], data["temperature"]
        )

    def chosen(self) -> list[Checkpoint]:
        selected = self.cleaned_data["checkpoints"]
        return [checkpoint for checkpoint in self.usable if str(checkpoint.event.pk) in selected]


@require_http_methods(["GET", "HEAD", "POST"])
def evaluations(request: HttpRequest, run_id: str) -> HttpResponseBase:
    """Show the evaluations page, or launch evaluations. htmx polls only the table, until all have ended."""
    run = queries.run_for(request, run_id)
    if request.method == "POST":
        return _start(request, run)
    return _page(request, run, EvaluationForm(request, run))


@operator_required
def _start(request: HttpRequest, run: Run) -> HttpResponseBase:
    form = EvaluationForm(request, run, request.POST)
    if not form.is_valid():
        return _page(request, run, form, status=422)
    try:
        if not starting.start(run, form.chosen(), form.setup(), person(request)):
            messages.info(request, "These models were already evaluated, and the same seed gives the same results.")
    except (ContractError, QueueFull) as error:
        messages.error(request, f"This can't be evaluated: {error}")
    return redirect("evaluations", run.pk)


def _page(request: HttpRequest, run: Run, form: EvaluationForm, status: int = 200) -> HttpResponse:
    evaluated = results.of_run(run)
    is_live = any(result.live for result in evaluated)
    context = {
        "run": run,
        "form": form,
        "results": evaluated,
        "names": list(dict.fromkeys(name for result in evaluated for name, _ in result.components)),
        "live": is_live,
        "may_operate": person(request).may_operate,
    }
    if request.headers.get("HX-Request") == "true":
        return render(request, "insight/evaluations/_results.html", context, status=200 if is_live else STOP_POLLING)
    return render(request, "insight/evaluations/evaluations.html", context, status=status)
