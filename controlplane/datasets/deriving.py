"""A version made of some of another one's rows."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from controlplane.accounts.models import User
from controlplane.datasets.errors import DatasetError
from controlplane.datasets.folders import make_folder
from controlplane.datasets.importing import made
from controlplane.datasets.models import DatasetVersion
from controlplane.datasets.reader.filtering import FilterError, RowFilter


def derive(
    user: User | None,
    parent: DatasetVersion,
    wanted: RowFilter | Mapping[str, Any],
    *,
    name: str = "",
    tokenizer: str = "",
) -> DatasetVersion:
    """The rows that `wanted` means, as the next version of the parent's dataset, or the first of a new one (`name`).

    They keep their row_id and the part that they are in: what was kept out of training stays out. `tokenizer`: a
    Tokenizer's sha256, to count the tokens with that the filter asks for; "" is the parent's. Raises DatasetError.
    """
    if parent.status != DatasetVersion.READY:
        raise DatasetError("Only a ready version has rows to choose from.")
    asked = as_filter(wanted)
    if not asked:
        raise DatasetError("The filter is empty: it would select every row.")
    tokenizer = tokenizer or parent.tokenizer
    if asked.max_prompt_tokens is not None and not tokenizer:
        raise DatasetError("Choose a tokenizer to count tokens with.")
    with made(user, name or parent.dataset.name, new=bool(name)) as version:
        version.parent, version.source_kind = parent, DatasetVersion.DERIVED
        version.source = {"filter": asked.as_dict()}
        version.file_name = parent.file_name
        version.mapping, version.split = parent.mapping, parent.split
        version.tokenizer, version.token_limit = tokenizer, asked.max_prompt_tokens or parent.token_limit
        version.save()
        make_folder(version.folder)
    return version


def as_filter(wanted: RowFilter | Mapping[str, Any] | None) -> RowFilter:
    """Raises DatasetError for what is no filter."""
    if isinstance(wanted, RowFilter):
        return wanted
    try:
        return RowFilter.from_dict(wanted or {})
    except FilterError as error:
        raise DatasetError(str(error)) from error
