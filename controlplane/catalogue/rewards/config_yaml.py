"""Export of a reward config's version as YAML, and import of YAML into the editor."""

from typing import Any

from controlplane.catalogue.rewards import saving
from controlplane.catalogue.rewards.forms import TURNS, WHOLE, RewardEditor, editor_from
from controlplane.catalogue.rewards.models import FAILED_SHARE, RewardConfig, RewardVersion
from controlplane.catalogue.versioned.parts_yaml import DocumentReading, document_of
from controlplane.platform import safe_yaml
from controlplane.platform.safe_yaml import short_value
from workers.contract.run import row_names
from workers.rewards.reward import Reward

TOP_KEYS = ("name", "description", "aggregation", "failed_share", "components")
PART_KEYS = ("name", "function", "weight", "params", "per_turn", "applies_to")


def export(version: RewardVersion) -> str:
    document = {
        "name": version.config.name,
        "description": version.config.description,
        "aggregation": version.aggregation,
        "failed_share": version.failed_share,
        "components": [saving.part_of(spec) for spec in version.specs],
    }
    return safe_yaml.dump(document, TOP_KEYS)


def read(content: bytes, config: RewardConfig | None = None) -> RewardEditor:
    """Return the editor filled in from a document, with all errors; nothing is stored. Saving it creates the next
    version of `config`, if given. Raises YamlRefused if the document isn't a reward config."""
    texts = ("name", "description", "aggregation")
    document, result = document_of(content, title="a reward config", top=TOP_KEYS, texts=texts)
    share = document.get("failed_share")
    result.read_field("", "failed_share", FAILED_SHARE if share is None else share, "float", "failed_share")
    for prefix, path, part, reward in result.parts(RewardVersion.kind, document.get("components"), PART_KEYS):
        result.read_field(prefix, "weight", part.get("weight", 1.0), "float", f"{path}.weight")
        _scores(result, prefix, reward, part.get("per_turn", False), path)
        _rows(result, prefix, part.get("applies_to"), f"{path}.applies_to")
    return result.validate(editor_from(result.sent, config))


def _scores(result: DocumentReading, prefix: str, reward: Reward, per_turn: Any, path: str) -> None:
    field_name = "scores" if reward.per_turn else ""
    result.sent[f"{prefix}-scores"] = TURNS if per_turn is True else WHOLE
    if not isinstance(per_turn, bool):
        result.wrong.append(
            (prefix, field_name, f"{path}.per_turn: expected true or false, got {short_value(per_turn)}.")
        )
    elif per_turn and not reward.per_turn:
        cause = f"{path}.per_turn: {reward.title} scores whole completions only."
        result.wrong.append((prefix, field_name, cause))


def _rows(result: DocumentReading, prefix: str, names: Any, path: str) -> None:
    names = [] if names is None else names
    if not isinstance(names, list) or not all(isinstance(name, str) for name in names):
        hint = "a list of names of datasets, sources or tags"
        result.wrong.append((prefix, "applies_to", f"{path}: expected {hint}, got {short_value(names)}."))
        return
    result.send(f"{prefix}-applies_to", ", ".join(names))
    result.wrong += [(prefix, "applies_to", f"{path}: {problem}") for problem in row_names.problems(names)]
