"""Pages of corpora: the list, forms to create one from columns or a text file, and a version with its search."""

from typing import Any

from django.contrib import messages
from django.http import Http404, HttpRequest, HttpResponse
from django.shortcuts import redirect, render
from django.views.decorators.http import require_GET, require_http_methods, require_POST

from controlplane.catalogue.datasets import archiving, reader_process
from controlplane.catalogue.datasets.corpora import building, plain_text
from controlplane.catalogue.datasets.corpora.forms import CorpusForm, QueryForm, TextForm
from controlplane.catalogue.datasets.corpora.queries import corpora_for, corpus_for
from controlplane.catalogue.datasets.errors import DatasetError
from controlplane.catalogue.datasets.models import CorpusVersion
from controlplane.catalogue.datasets.queries import version_for
from controlplane.catalogue.datasets.receiving import shown_name
from controlplane.catalogue.datasets.work_queue import read_progress
from controlplane.platform.accounts.roles import operator_required, person
from controlplane.platform.http import upload
from controlplane.platform.http.form_pages import form_page
from workers.contract.run.corpora import MAX_TEXT_LENGTH
from workers.environments import encyclopaedia

SEARCH_SECONDS = 60.0
"""Time limit of a query. The first query indexes the documents: 100,000 of 100 words take about 5 seconds."""


@require_GET
def corpora(request: HttpRequest) -> HttpResponse:
    archived = request.GET.get("archived") == "1"
    versions = list(corpora_for(request))
    shown_versions = [version for version in versions if archived or version.archived_at is None]
    away = sum(version.archived_at is not None for version in versions)
    context = {"versions": shown_versions, "archived": archived, "away": away}
    return render(request, "catalogue/datasets/corpora/list.html", context)


@operator_required
@require_http_methods(["GET", "POST"])
def new(request: HttpRequest, dataset_id: int, number: int) -> HttpResponse:
    version = version_for(request, dataset_id, number)
    form = CorpusForm(version, request.POST if request.method == "POST" else None)
    if request.method == "POST" and form.is_valid():
        data = form.cleaned_data
        try:
            corpus_version = building.create(
                person(request), data["name"], version, text=data["text"], title=data["title"], about=data["about"]
            )
        except DatasetError as error:
            form.add_error(None, str(error))
        else:
            return redirect(corpus_version)
    context = {"form": form, "version": version, "columns": building.columns_of(version)}
    return form_page(request, "catalogue/datasets/corpora/new.html", context)


@operator_required
@require_http_methods(["GET", "POST"])
def text(request: HttpRequest) -> HttpResponse:
    """Create a corpus from a text file's paragraphs."""
    form = TextForm(*((request.POST, request.FILES) if request.method == "POST" else ()))
    if problem := upload.problem(request):
        form.add_error("file", problem)
    elif request.method == "POST" and form.is_valid():
        data, name = form.cleaned_data, shown_name(str(form.cleaned_data["file"].name))
        try:
            lines = plain_text.lines(data["file"].read(plain_text.MAX_BYTES + 1), name)
            return redirect(
                building.create_from_lines(person(request), data["name"], lines, source=name, about=data["about"])
            )
        except DatasetError as error:
            form.add_error("file", str(error))
    return form_page(request, "catalogue/datasets/corpora/text.html", {"form": form})


@operator_required
@require_POST
def sample(request: HttpRequest) -> HttpResponse:
    try:
        version = building.create_sample(person(request))
    except DatasetError as error:
        messages.error(request, str(error))
        return redirect("corpora")
    messages.info(request, f"Questions that this corpus answers are in the dataset {encyclopaedia.QUESTIONS}.")
    return redirect(version)


@require_GET
def corpus(request: HttpRequest, corpus_id: int, number: int) -> HttpResponse:
    """Show a version and, with ?q=, what the search tool finds in it."""
    version = corpus_for(request, corpus_id, number)
    context: dict[str, Any] = {"version": version, "versions": version.corpus.versions.all()}
    if version.status == CorpusVersion.MAKING:
        context["progress"] = read_progress(version.folder)
    elif version.status == CorpusVersion.READY:
        form = QueryForm(request.GET if "q" in request.GET else None)
        context |= {
            "form": form,
            "longest": MAX_TEXT_LENGTH,
            "preview": version.report.get("preview") or [],
            "found": _search(version, form),
        }
    return render(request, "catalogue/datasets/corpora/corpus.html", context)


@require_GET
def state(request: HttpRequest, corpus_id: int, number: int) -> HttpResponse:
    """Show the worker's progress, which the page polls each second until the version is built."""
    try:
        version = corpus_for(request, corpus_id, number)
    except Http404:
        if "HX-Request" not in request.headers:
            raise
        return HttpResponse(headers={"HX-Refresh": "true"})  # deleted in another tab: the reloaded page says so
    if version.status != CorpusVersion.MAKING:
        return HttpResponse(headers={"HX-Refresh": "true"})
    context = {"version": version, "progress": read_progress(version.folder)}
    return render(request, "catalogue/datasets/corpora/_progress.html", context)


@operator_required
@require_POST
def archive(request: HttpRequest, corpus_id: int, number: int, archived: bool) -> HttpResponse:
    version = corpus_for(request, corpus_id, number)
    if archiving.set_archived(version, archived):
        messages.success(request, archiving.archived_sentence(str(version), archived))
    return redirect(version)


@operator_required
@require_POST
def delete(request: HttpRequest, corpus_id: int, number: int) -> HttpResponse:
    version = corpus_for(request, corpus_id, number)
    title = str(version)
    try:
        archiving.delete_corpus_version(version)
    except DatasetError as error:
        messages.error(request, str(error))
        return redirect(version)
    messages.success(request, f"Deleted {title}.")
    return redirect("corpora")


def _search(version: CorpusVersion, form: QueryForm) -> dict[str, Any] | None:
    """Search as the tool does, and return {"text": what the model would read, "failed": bool}, or None without a
    query."""
    if not form.is_bound or not form.is_valid():
        return None
    if not version.path.is_file():
        return {"text": "The documents of this version are no longer on the server.", "failed": True}
    arguments = {"query": form.cleaned_data["q"], "corpus": str(version), "results": 5}
    try:
        result: dict[str, Any] = reader_process.ask(version.folder, "search", arguments, seconds=SEARCH_SECONDS)
    except DatasetError as error:
        return {"text": str(error), "failed": True}
    return result
