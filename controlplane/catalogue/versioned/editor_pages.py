"""Pages for editing an item: a new one, an existing one, or one imported from a document."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

from django.contrib import messages
from django.core.exceptions import PermissionDenied
from django.db import IntegrityError, transaction
from django.http import HttpRequest, HttpResponse, QueryDict
from django.shortcuts import redirect, render

from controlplane.catalogue.versioned import parts_yaml
from controlplane.catalogue.versioned.editing import ItemEditor
from controlplane.catalogue.versioned.models import Item, Version
from controlplane.catalogue.versioned.queries import item_for
from controlplane.platform import safe_yaml
from controlplane.platform.accounts.roles import person
from controlplane.platform.http.form_pages import import_page

EditorT = TypeVar("EditorT", bound=ItemEditor[Any])


@dataclass(frozen=True)
class EditorPages(Generic[EditorT]):
    model: type[Version]
    editor_from: Callable[[QueryDict, Any], EditorT]
    """Function that returns the editor of a submitted form, for the given item or, if that is None, a new one."""
    editor_of: Callable[[Any], EditorT]
    """Function that returns the editor filled in from a version."""
    read: Callable[[bytes], EditorT]
    """Function that returns the editor filled in from a document, or raises YamlRefused if it can't read the
    document."""
    version_page: Callable[[HttpRequest, Any], HttpResponse]
    """View of a version's read-only page."""
    refusals: Callable[[HttpRequest, EditorT], Mapping[int, str]]
    """Function that returns the reasons why this user may not save rows of a valid editor, by their index."""
    context: Callable[[HttpRequest, EditorT], dict[str, Any]]
    """Function that returns additional values for the template."""

    def new(self, request: HttpRequest, new_editor: Callable[[], EditorT]) -> HttpResponse:
        if request.method == "POST":
            return self._save(request, self.editor_from(request.POST, None), None)
        return self._page(request, new_editor(), None)

    def edit(self, request: HttpRequest, item_id: int) -> HttpResponse:
        """Show the editor to users who may edit an item, and save it on POST; show the read-only page to other users
        and for archived items."""
        items, may_edit = self.model.items(), person(request).may_operate
        if request.method == "POST" and may_edit and not items._default_manager.filter(pk=item_id).exists():
            return self._deleted(request)
        item: Any = item_for(items, request, item_id)
        if request.method == "POST":
            if not may_edit:
                raise PermissionDenied("This requires the operator role. Ask an admin of this installation for it.")
            return self._save(request, self.editor_from(request.POST, item), item)
        if item.archived_at or not may_edit:
            return self.version_page(request, item.newest())
        return self._page(request, self.editor_of(item.newest()), item)

    def import_(self, request: HttpRequest) -> HttpResponse:
        """Open an uploaded or pasted document in a new item's editor, with errors per field, without saving it."""
        if request.method != "POST":
            return self._import_form(request)
        try:
            editor = self.read(safe_yaml.document(request, parts_yaml.MAX_BYTES))
        except safe_yaml.YamlRefused as error:
            return self._import_form(request, str(error))
        return self._page(request, editor, None, status=422 if editor.problem or editor.wrong else 200, is_import=True)

    def _save(self, request: HttpRequest, editor: EditorT, item: Item | None) -> HttpResponse:
        previous_name = item.name if item else ""
        if editor.is_valid() and self._may_be_saved(request, editor, item):
            try:
                with transaction.atomic():
                    version, is_new = editor.save(person(request))
            except IntegrityError:  # the name was taken between the check and the save
                editor.form.add_error("name", editor.form.name_taken)
            else:
                messages.success(request, _saved_message(version, is_new))
                return redirect(self.model.kind.route, version.item.pk)
        if item:
            item.name = previous_name  # the form has overwritten it with the typed one
        return self._page(request, editor, item, status=422)

    def _deleted(self, request: HttpRequest) -> HttpResponse:
        """Show the edits of an item that has since been deleted in the editor of a new item."""
        editor = self.editor_from(request.POST, None)
        editor.is_valid()
        reason = f"This {self.model.kind.name} was deleted since you opened it. Save again to create a new one."
        editor.problem = f"{reason} {editor.problem}".strip()
        return self._page(request, editor, None, status=422)

    def _may_be_saved(self, request: HttpRequest, editor: EditorT, item: Any) -> bool:
        if item and item.archived_at:
            editor.problem = f"This {self.model.kind.name} is archived. Unarchive it to change it."
            return False
        refusals = self.refusals(request, editor)
        for index, message in refusals.items():
            editor.rows[index].refuse(message)
        if item and not refusals:
            newest, based_on = item.newest(), editor.form.cleaned_data["based_on"]
            if based_on is not None and based_on != newest.number:
                author = newest.created_by.get_username() if newest.created_by else "Somebody"
                editor.problem = (
                    f"{author} has saved version {newest.number} since you opened version {based_on}. Save again to "
                    f"create version {newest.number + 1} from this form; version {newest.number} is kept."
                )
                editor.rebase(newest.number)
                return False
        return not refusals

    def _page(
        self, request: HttpRequest, editor: EditorT, item: Any, *, status: int = 200, is_import: bool = False
    ) -> HttpResponse:
        context = {
            "editor": editor,
            "form": editor.form,
            "kind": self.model.kind,
            "item": item,
            "imported": is_import,
            "version": item.newest() if item else None,
            **self.context(request, editor),
        }
        return render(request, f"catalogue/{self.model._meta.app_label}/edit.html", context, status=status)

    def _import_form(self, request: HttpRequest, problem: str = "") -> HttpResponse:
        template = f"catalogue/{self.model._meta.app_label}/import.html"
        return import_page(request, template, problem, parts_yaml.MAX_BYTES, echo_limit=parts_yaml.MAX_BYTES)


def _saved_message(version: Version, is_new: bool) -> str:
    if not is_new:
        return f"Saved {version.item}. Its content is unchanged, so it is still version {version.number}."
    if version.number == 1:
        return f"Saved {version.item}."
    return f"Saved {version.item} as version {version.number}. Existing runs keep their version."
