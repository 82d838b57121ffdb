"""Parser and writer of a small, strict subset of YAML: mappings, lists, strings, numbers, true, false and null.

It refuses anchors, aliases, tags, duplicate keys, a second document, more than 8 levels, and by default more than
64 KiB. Dates, sexagesimal numbers, `yes` and `off` are strings, as in YAML 1.2.
"""

import re
from collections.abc import Hashable
from typing import Any

import yaml
from django.http import HttpRequest

from controlplane.platform.confined.tasks import ConfinedTask
from controlplane.platform.http import upload
from controlplane.platform.templatetags.figures import size_in_words

MAX_BYTES = 64 * 1024
MAX_LEVELS = 8

_SCALARS: tuple[tuple[str, str, str], ...] = (
    ("null", r"(?:null|Null|NULL|~|)", "nN~"),
    ("bool", r"(?:true|True|TRUE|false|False|FALSE)", "tTfF"),
    ("int", r"[-+]?[0-9]{1,18}", "-+0123456789"),
    (
        "float",
        r"[-+]?(?:[0-9]{1,18}\.[0-9]{0,18}|\.[0-9]{1,18}|[0-9]{1,18}(?=[eE]))(?:[eE][-+]?[0-9]{1,3})?",
        "-+.0123456789",
    ),
)


class YamlRefused(ValueError):
    """Error for a document that can't be accepted; the message says where and why."""


def parse(content: bytes, limit: int = MAX_BYTES) -> Any:
    if len(content) > limit:
        raise YamlRefused(f"It is larger than {size_in_words(limit)}, the limit here.")
    try:
        text = content.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise YamlRefused(f"It is not valid UTF-8: byte {error.start + 1} can't be decoded.") from error
    try:
        loader = _Loader(text)
        return loader.get_single_data()
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        where = f"Line {mark.line + 1}, column {mark.column + 1}: " if mark else ""
        raise YamlRefused(f"{where}{error.problem or error.context}.") from error
    except yaml.YAMLError as error:
        raise YamlRefused(f"It is not valid YAML: {str(error).splitlines()[0]}.") from error


load = ConfinedTask(parse, "Reading this YAML", (YamlRefused,))


def document(request: HttpRequest, limit: int) -> bytes:
    """Read a document from the field `file` or `text`: up to one byte beyond `limit`, so that too large ones are
    noticed. Raises YamlRefused if there is none or it can't be read."""
    if problem := upload.problem(request):
        raise YamlRefused(problem)
    file = request.FILES.get("file")
    if file is not None:
        return bytes(file.read(limit + 1))
    text = request.POST.get("text", "")
    if not text.strip():
        raise YamlRefused("Choose a file, or paste a document.")
    return text.encode(errors="surrogatepass")


def dump(value: dict[str, Any], keys: tuple[str, ...]) -> str:
    """Return a mapping as YAML with these keys, in this order."""
    return yaml.dump({key: value[key] for key in keys}, Dumper=_Dumper, sort_keys=False, allow_unicode=True, width=100)


def short_value(value: Any) -> str:
    """Return the value for an error message, truncated to 80 characters."""
    text = str(value)
    return text if len(text) <= 80 else text[:79] + "…"


class _Loader(yaml.SafeLoader):
    yaml_implicit_resolvers: dict[str, Any] = {}

    def __init__(self, text: str) -> None:
        super().__init__(text)
        self.levels = 0

    def compose_node(self, parent: Any, index: Any) -> Any:
        event = self.peek_event()  # type: ignore[no-untyped-call]
        if isinstance(event, yaml.AliasEvent) or getattr(event, "anchor", None) is not None:
            raise yaml.MarkedYAMLError(problem="anchors and aliases are not supported", problem_mark=event.start_mark)
        if getattr(event, "tag", None) is not None:
            raise yaml.MarkedYAMLError(
                problem=f"the tag {event.tag[:60]} is not supported", problem_mark=event.start_mark
            )
        self.levels += 1
        if self.levels > MAX_LEVELS:
            raise yaml.MarkedYAMLError(
                problem=f"it is nested more than {MAX_LEVELS} levels deep", problem_mark=event.start_mark
            )
        node = super().compose_node(parent, index)
        self.levels -= 1
        return node

    def construct_mapping(self, node: Any, deep: bool = False) -> dict[Hashable, Any]:
        mapping: dict[Hashable, Any] = {}
        for key_node, value_node in node.value:
            key = self.construct_object(key_node, deep=True)
            if not isinstance(key, str):
                raise yaml.MarkedYAMLError(problem="a key must be a string", problem_mark=key_node.start_mark)
            if key in mapping:
                raise yaml.MarkedYAMLError(problem=f"{key[:60]!r} occurs twice", problem_mark=key_node.start_mark)
            mapping[key] = self.construct_object(value_node, deep=True)
        return mapping

    def construct_scalar(self, node: Any) -> Any:
        text = super().construct_scalar(node)
        if isinstance(text, str) and any("\ud800" <= character <= "\udfff" for character in text):
            raise yaml.MarkedYAMLError(problem="unpaired surrogate", problem_mark=node.start_mark)
        return text

    def construct_yaml_int(self, node: Any) -> int:
        return int(self.construct_scalar(node))

    def construct_yaml_float(self, node: Any) -> float:
        return float(self.construct_scalar(node))

    def construct_yaml_bool(self, node: Any) -> bool:
        return str(self.construct_scalar(node)).lower() == "true"

    def construct_yaml_map(self, node: Any) -> Any:
        return self.construct_mapping(node, deep=True)


class _Dumper(yaml.SafeDumper):
    """Writer of YAML that quotes strings which this loader or one for YAML 1.1 would not read as strings."""

    def ignore_aliases(self, data: Any) -> bool:
        return True

    def represent_text(self, data: str) -> yaml.ScalarNode:
        """Write text with line breaks as a block, so that code stays readable."""
        return self.represent_scalar("tag:yaml.org,2002:str", data, style="|" if "\n" in data else None)


_Dumper.add_representer(str, _Dumper.represent_text)
for _kind, _pattern, _first in _SCALARS:
    for _class in (_Loader, _Dumper):
        _class.add_implicit_resolver(
            f"tag:yaml.org,2002:{_kind}", re.compile(rf"^{_pattern}$"), [*_first, *([""] if _kind == "null" else [])]
        )
for _kind in ("int", "float", "bool", "map"):
    _Loader.add_constructor(f"tag:yaml.org,2002:{_kind}", getattr(_Loader, f"construct_yaml_{_kind}"))
