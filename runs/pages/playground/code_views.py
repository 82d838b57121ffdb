"""The Check button of custom code. Admins only, as for editing code."""

from __future__ import annotations

from django.http import Http404, HttpRequest, HttpResponse
from django.shortcuts import render
from django.views.decorators.http import require_POST

from controlplane.catalogue.rewards import code_check
from controlplane.catalogue.versioned.parameter_forms import PARAM, PREFIX
from controlplane.platform.accounts.roles import admin_required
from runs.pages.playground import completions_source
from workers.rewards.entries import custom


@admin_required
@require_POST
def check(request: HttpRequest) -> HttpResponse:
    """Check a component of the editor's form (?of=its prefix) on the playground's completions."""
    prefix = request.GET.get("of", "")
    name = f"{prefix}-{PARAM}{code_check.PARAM}"
    if not PREFIX.fullmatch(prefix) or name not in request.POST:
        raise Http404
    source = request.POST[name].replace("\r\n", "\n")
    if len(source) > custom.LONGEST:
        return _answer(request, {"problem": f"It is longer than {custom.LONGEST} characters."})
    samples = samples_of(request)
    trial = code_check.check(source, samples)
    tried = samples or code_check.made_up()
    scored = [(completion.text, value) for (completion, _), value in zip(tried, trial.scores.values, strict=False)]
    context = {"problem": trial.problem, "trial": trial, "made_up": not samples, "scored": scored}
    return _answer(request, context)


def samples_of(request: HttpRequest) -> list[code_check.Sample]:
    """The playground's completions, as in the form; may be empty."""
    texts = request.POST.getlist("completion")
    if not any(text.strip() for text in texts):
        return []
    source = completions_source.read(request, request.POST)
    written = completions_source.written(source, texts, request.POST.getlist("of"))
    return [(completion, source.row) for completion in written.values()]


def _answer(request: HttpRequest, context: dict[str, object]) -> HttpResponse:
    return render(request, "catalogue/rewards/_code_check.html", context)
