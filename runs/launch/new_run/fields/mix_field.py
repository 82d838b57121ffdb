"""The field of a mix's datasets: a line each, or a JSON list from a program."""

import json
import re
from collections.abc import Callable, Iterator
from typing import Any

from django import forms
from django.core.exceptions import ValidationError

from controlplane.catalogue.datasets.models import DatasetVersion
from controlplane.platform.http.request_body import storable_value
from controlplane.platform.safe_yaml import short_value
from runs.engine.spec import ChosenSource
from runs.launch.new_run.fields.table import BY_FIELD
from workers.contract.run.mixing import SourceSettings
from workers.contract.run.spec import DataSpec
from workers.contract.wire.documents import ContractError, from_dict

FIELD = "sources"
HOW_TO = "Write each dataset on a line of its own, such as “words v2, weight 0.5, at most 1000 rows”."
_LINE = re.compile(
    r"(?P<dataset>.+ v\d{1,8})(?:, weight (?P<weight>[^,\s]+))?(?:, at most (?P<max_rows>\d{1,9}) rows?)?"
    r"(?:, system prompt: (?P<system_prompt>.*))?"
)


class MixField(forms.CharField):
    """The chosen sources, in order. A line with the run's own dataset sets its weight."""

    def clean(self, value: Any) -> tuple[ChosenSource, ...]:
        text = str(super().clean(value) or "")
        lines = filter(None, map(str.strip, text.splitlines()))
        entries = _of_json(text) if text.startswith("[") else [_of_line(line) for line in lines]
        return tuple(_source(entry) for entry in entries)


def mix_field() -> MixField:
    row = BY_FIELD[FIELD]
    return MixField(**row.form_arguments, max_length=row.longest, widget=forms.Textarea(attrs=dict(row.attributes)))


def lines_of(data: DataSpec) -> str:
    """Write a spec's mix as the field's text; "" without a mix."""
    return "\n".join(_lines(data)) if data.sources else ""


def _lines(data: DataSpec) -> Iterator[str]:
    for source in data.every_source:
        bound = f", at most {source.max_rows} rows" if source.max_rows else ""
        prompt = json.dumps(source.system_prompt, ensure_ascii=False)[1:-1]
        ending = f", system prompt: {prompt}" if prompt else ""
        yield f"{source.name} v{source.version}, weight {source.weight!r}{bound}{ending}"


def _of_line(line: str) -> dict[str, Any]:
    match = _LINE.fullmatch(line)
    values: dict[str, Any] = {name: value for name, value in match.groupdict().items() if value} if match else {}
    converters: dict[str, Callable[[str], Any]] = {"weight": float, "max_rows": int, "system_prompt": _unescaped}
    try:
        values |= {name: convert(values[name]) for name, convert in converters.items() if name in values}
    except ValueError:
        values = {}
    if not values:
        raise ValidationError(f"{short_value(line)} can't be read. {HOW_TO}")
    return values


def _unescaped(text: str) -> str:
    return str(storable_value(f'"{text}"')) if "\\" in text else text


def _of_json(text: str) -> list[Any]:
    try:
        entries = storable_value(text)
    except (ValueError, RecursionError):
        raise ValidationError(f"This is not a valid JSON list. {HOW_TO}") from None
    return list(entries)


def _source(entry: Any) -> ChosenSource:
    if not isinstance(entry, dict) or not isinstance(entry.get("dataset"), str):
        raise ValidationError(f'{short_value(entry)} names no dataset. Use {{"dataset": "words v2", "weight": 0.5}}.')
    title, settings = entry["dataset"], {name: value for name, value in entry.items() if name != "dataset"}
    try:
        chosen_settings = from_dict(SourceSettings, settings)
    except ContractError as error:
        raise ValidationError(f"{short_value(title)}: {error}.") from None
    return ChosenSource(_version(title), chosen_settings)


def _version(title: str) -> DatasetVersion:
    name, _, number = title.replace("\0", "").rpartition(" v")
    is_number = number.isascii() and number.isdigit() and len(number) < 9
    versions = DatasetVersion.objects.filter(dataset__name=name.strip(), dataset__deleted_at=None)
    version = versions.select_related("dataset").filter(number=int(number)).first() if is_number else None
    if version is None:
        raise ValidationError(f"There is no dataset {short_value(title)}; it may have been deleted. Choose another.")
    if version.status != DatasetVersion.READY:
        raise ValidationError(f"{version} isn't ready. Finish its column mapping, or choose another.")
    return version
