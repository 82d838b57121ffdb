"""Taking a reward config elsewhere as YAML, and one from elsewhere into the editor."""

from __future__ import annotations

from django.http import HttpRequest, HttpResponse
from django.shortcuts import render
from django.utils.text import slugify
from django.views.decorators.http import require_http_methods, require_safe

from controlplane import yaml_upload
from controlplane.accounts.roles import operator_required
from controlplane.rewards import config_yaml
from controlplane.rewards.queries import version_for
from controlplane.rewards.views import editor_page
from controlplane.safe_yaml import YamlRefused


@require_safe
def export(request: HttpRequest, config_id: int, number: int) -> HttpResponse:
    version = version_for(request, config_id, number)
    answer = HttpResponse(config_yaml.export(version), content_type="application/yaml; charset=utf-8")
    name = f"{slugify(version.config.name) or 'rewards'}-v{version.number}.yaml"
    answer["Content-Disposition"] = f'attachment; filename="{name}"'
    return answer


@operator_required
@require_http_methods(["GET", "HEAD", "POST"])
def import_(request: HttpRequest) -> HttpResponse:
    """A document, by file or pasted, as a new config's editor with a message beside each field; saving is the
    editor's."""
    if request.method != "POST":
        return _asking(request)
    try:
        editor = config_yaml.read(yaml_upload.document(request, config_yaml.MOST_BYTES))
    except YamlRefused as error:
        return _asking(request, str(error))
    wrong = editor.problem or editor.config.errors or any(form.errors for form in editor.components)
    return editor_page(request, editor, None, status=422 if wrong else 200, imported=True)


def _asking(request: HttpRequest, problem: str = "") -> HttpResponse:
    text = request.POST.get("text", "")
    most = config_yaml.MOST_BYTES
    context = {"problem": problem, "text": text if len(text) <= most else "", "most_kb": most // 1024}
    return render(request, "rewards/import.html", context, status=422 if problem else 200)
