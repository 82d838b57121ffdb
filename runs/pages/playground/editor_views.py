"""The page for editing and trying a reward config, and the check of its custom Python code."""

from typing import Any

from django.http import Http404, HttpRequest, HttpResponse
from django.shortcuts import render
from django.views.decorators.http import require_http_methods, require_POST

from controlplane.catalogue.datasets.queries import known_row_names
from controlplane.catalogue.rewards import code_check, config_yaml
from controlplane.catalogue.rewards.forms import ConfigForm, RewardEditor, editor_from, editor_of, new_row
from controlplane.catalogue.rewards.library import groups
from controlplane.catalogue.rewards.models import RewardVersion
from controlplane.catalogue.rewards.views import version_page
from controlplane.catalogue.versioned import parts_yaml
from controlplane.catalogue.versioned.editor_pages import EditorPages
from controlplane.catalogue.versioned.parameter_forms import PARAM, PREFIX
from controlplane.platform.accounts.roles import admin_required, operator_required, person
from controlplane.platform.http.body_limit import reads_at_most
from runs.pages.playground import completions_source
from runs.pages.playground.views import sample_context
from workers.rewards.entries import custom
from workers.rewards.library import LIBRARY

INITIAL_COMPONENTS = ("think_tags", "numeric_match")
CHECKED = "catalogue/rewards/_code_check.html"


@operator_required
@require_http_methods(["GET", "POST"])
def new(request: HttpRequest) -> HttpResponse:
    """Show the editor for a new config, with the library's function ?function=KEY if it is given."""
    key = request.GET.get("function", "")
    may_use = key in LIBRARY and (not LIBRARY[key].admin_only or person(request).may_administer)
    keys = [key for key in ((key,) if may_use else INITIAL_COMPONENTS) if key in LIBRARY]
    return PAGES.new(request, lambda: RewardEditor(ConfigForm(), [new_row(key, set()) for key in keys]))


@require_http_methods(["GET", "POST"])
def edit(request: HttpRequest, config_id: int) -> HttpResponse:
    return PAGES.edit(request, config_id)


@reads_at_most(parts_yaml.MAX_BYTES)
@operator_required
@require_http_methods(["GET", "HEAD", "POST"])
def import_(request: HttpRequest) -> HttpResponse:
    return PAGES.import_(request)


def _refusals(request: HttpRequest, editor: RewardEditor) -> dict[int, str]:
    specs = [form.spec() for form in editor.rows]
    return code_check.problems(specs, person(request), lambda: samples_of(request))


def _context(request: HttpRequest, editor: RewardEditor) -> dict[str, Any]:
    return {
        "balance": editor.balance(),
        "groups": groups(person(request)),
        "row_names": known_row_names(request),
        **sample_context(request, request.GET if request.method == "GET" else request.POST),
    }


PAGES = EditorPages(
    model=RewardVersion,
    editor_from=editor_from,
    editor_of=editor_of,
    read=config_yaml.read,
    version_page=version_page,
    refusals=_refusals,
    context=_context,
)


@admin_required
@require_POST
def check(request: HttpRequest) -> HttpResponse:
    """Check the code of a component of the editor's form (?of=its prefix) on the playground's completions."""
    prefix = request.GET.get("of", "")
    name = f"{prefix}-{PARAM}{code_check.PARAM}"
    if not PREFIX.fullmatch(prefix) or name not in request.POST:
        raise Http404
    source = request.POST[name].replace("\r\n", "\n")
    if len(source) > custom.MAX_SOURCE_CHARS:
        return render(request, CHECKED, {"problem": f"The code is longer than {custom.MAX_SOURCE_CHARS} characters."})
    samples = samples_of(request)
    trial = code_check.check(source, samples)
    tried_samples = samples or code_check.invented_samples()
    scored_samples = [
        (completion.text, value) for (completion, _), value in zip(tried_samples, trial.scores.values, strict=False)
    ]
    context = {"problem": trial.problem, "trial": trial, "made_up": not samples, "scored": scored_samples}
    return render(request, CHECKED, context)


def samples_of(request: HttpRequest) -> list[code_check.Sample]:
    """Return the playground's completions in the form, each with its row, or [] if none was entered."""
    texts = request.POST.getlist("completion")
    if not any(text.strip() for text in texts):
        return []
    source = completions_source.read(request, request.POST)
    completions = completions_source.to_score(source, texts, request.POST.getlist("of"))
    return [(completion, source.row) for completion in completions.values()]
