"""Derivation of a version from some rows of another one."""

from controlplane.catalogue.datasets.actions import new_version
from controlplane.catalogue.datasets.errors import DatasetError
from controlplane.catalogue.datasets.folders import make_folder
from controlplane.catalogue.datasets.models import DatasetVersion
from controlplane.catalogue.datasets.reader.versions.filtering import RowFilter
from controlplane.platform.accounts.models import User


def derive(
    user: User | None,
    parent: DatasetVersion,
    row_filter: RowFilter,
    *,
    name: str = "",
    tokenizer: str = "",
    why: str = "",
) -> DatasetVersion:
    """Queue a version with the rows that pass a filter, in the parent's dataset or in a new dataset `name`.

    Rows keep their row_id and their split: validation rows stay validation rows. `tokenizer` is the sha256 of the
    Tokenizer for the filter's token limit, by default the parent's. `why` says, for the lineage, where the filter comes
    from. Raises DatasetError if the parent isn't ready, the filter is empty, or its token limit lacks a tokenizer.
    """
    if parent.status != DatasetVersion.READY:
        raise DatasetError("Only a ready version has rows to choose from.")
    if not row_filter:
        raise DatasetError("The filter is empty: it would select every row.")
    tokenizer = tokenizer or parent.tokenizer
    if row_filter.max_prompt_tokens is not None and not tokenizer:
        raise DatasetError("Choose a tokenizer to count tokens with.")
    with new_version(user, name or parent.dataset.name, must_be_new=bool(name)) as version:
        version.parent, version.source_kind = parent, DatasetVersion.DERIVED
        version.source = {"filter": row_filter.as_dict(), **({"why": why} if why else {})}
        version.file_name = parent.file_name
        version.mapping, version.split = parent.mapping, parent.split
        version.tokenizer, version.token_limit = tokenizer, row_filter.max_prompt_tokens or parent.token_limit
        version.save()
        make_folder(version.folder)
    return version
