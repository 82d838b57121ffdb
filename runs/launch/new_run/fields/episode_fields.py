"""The fields of a run's environment: its tools, limits, credit and chat template, or the agents that drive it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Any

from django import forms

from controlplane.catalogue.environments.models import EnvironmentVersion
from runs.launch.new_run.fields.choice_fields import bounds
from workers.contract.run.episodes import EpisodeLimits, EpisodeSpec, GatewaySpec
from workers.contract.run.settings import names_below, of_section, section_of
from workers.contract.stack.tool_templates import READABLE

LIMITS = tuple(setting.path.rpartition(".")[2] for setting in of_section("episodes.limits"))
ENVIRONMENT_FIELDS = ("environment", "driven_by", "turn_advantage_coef", "tool_template")
_GATEWAY = of_section("episodes.gateway")
GATEWAY_FIELDS = tuple(setting.name for setting in _GATEWAY if setting.name != "driven_by")
ATROPOS_FIELDS = ("max_token_len", "gateway_requests", "gateway_interval_s")
EPISODE_LIMIT_FIELDS = names_below("episodes.limits")
EPISODE_FIELDS = (*ENVIRONMENT_FIELDS, *GATEWAY_FIELDS, *EPISODE_LIMIT_FIELDS)
_LIMIT_OF = dict(zip(EPISODE_LIMIT_FIELDS, LIMITS, strict=True))
ITS_OWN = "the environment’s"


class EnvironmentChoice(forms.ModelChoiceField):  # type: ignore[type-arg]  # not subscriptable when it runs
    def label_from_instance(self, obj: EnvironmentVersion) -> str:
        parts = ", ".join(part.name for part in obj.specs)
        return f"{obj} · {parts}" if parts else str(obj)


def _whole(label: str, help_text: str, most: int) -> forms.IntegerField:
    widget = forms.NumberInput(attrs={"placeholder": ITS_OWN})
    return forms.IntegerField(
        label=label, help_text=help_text, required=False, min_value=1, max_value=most, widget=widget
    )


def _seconds(label: str, help_text: str) -> forms.FloatField:
    widget = forms.TextInput(attrs={"placeholder": ITS_OWN, "inputmode": "decimal"})
    return forms.FloatField(
        label=label, help_text=help_text, required=False, min_value=0.1, max_value=86_400, widget=widget
    )


class EpisodeFields(forms.Form):
    environment = EnvironmentChoice(
        EnvironmentVersion.objects.none(),
        label="Environment",
        required=False,
        empty_label="none: a completion is one turn",
        help_text="Tools that the model may call, or a game that it plays, over several turns.",
    )
    driven_by = forms.ChoiceField(
        label="Episodes are driven by",
        required=False,
        choices=[
            ("", "the run itself"),
            ("agents", "agents of yours, through the run’s endpoint"),
            ("atropos", "Atropos environments, through its API"),
        ],
        help_text="Agents ask an OpenAI-compatible endpoint of the run with its key, and bring their own tools.",
    )
    turn_advantage_coef = forms.FloatField(
        label="Weight of a turn’s own advantage",
        required=False,
        **bounds("turn_advantage_coef"),
        initial=1.0,
        help_text="Beside the outcome’s, for rewards that score each turn. 0: the outcome alone counts.",
        widget=forms.TextInput(attrs={"inputmode": "decimal"}),
    )
    tool_template = forms.ChoiceField(
        label="Chat template",
        required=False,
        choices=[("", "the model’s own"), *((name, f"{name} (TRL’s)") for name in READABLE)],
        help_text="Another one for a model whose own can’t show tools.",
    )
    session_s = forms.FloatField(
        label="Seconds for a session",
        required=False,
        **bounds("session_s"),
        initial=GatewaySpec().session_s,
        help_text="From taking a task to its end; then the agent counts as gone.",
        widget=forms.TextInput(attrs={"inputmode": "decimal"}),
    )
    max_token_len = forms.IntegerField(
        label="Tokens told to Atropos",
        required=False,
        **bounds("max_token_len"),
        initial=GatewaySpec().max_token_len,
        help_text="Prompt and completion together; its environments keep to it.",
    )
    shows_answer = forms.BooleanField(
        label="Tasks show the answer",
        required=False,
        help_text="Agents also get the row’s answer and tests, to score themselves.",
    )
    gateway_requests = forms.IntegerField(
        label="Requests of Atropos at most",
        required=False,
        **bounds("gateway_requests"),
        initial=GatewaySpec().requests,
        help_text="That are answered in the time beside; the others wait. 0: no limit.",
    )
    gateway_interval_s = forms.FloatField(
        label="In so many seconds",
        required=False,
        **bounds("gateway_interval_s"),
        initial=GatewaySpec().interval_s,
        help_text="For the limit of requests.",
        widget=forms.TextInput(attrs={"inputmode": "decimal"}),
    )
    open_beyond_loopback = forms.BooleanField(
        label="Reachable from other machines",
        required=False,
        help_text="Listens on every address of the host. Only admins may choose it; a key is needed in any case.",
    )
    episode_turns = _whole("Turns", "Messages of the model in one episode.", 1000)
    episode_calls = _whole("Calls in a turn", "More are answered with an error.", 1000)
    episode_output_tokens = _whole("Tokens of a result", "What is longer is cut, and says so.", 1_000_000)
    episode_call_s = _seconds("Seconds for a call", "Then the model reads that it took too long.")
    episode_s = _seconds("Seconds for an episode", "The model’s own time included.")
    episode_at_once = _whole("Calls at once", "Side by side on the host.", 10_000)
    episode_count_outputs = forms.ChoiceField(
        label="Results count as length",
        required=False,
        choices=[("", ITS_OWN), ("true", "yes, against the completion length"), ("false", "no, only what is written")],
        help_text="Whether tools’ text uses up the completion length.",
    )

    @property
    def environment_fields(self) -> list[forms.BoundField]:
        return [self[name] for name in ENVIRONMENT_FIELDS]

    @property
    def atropos_fields(self) -> list[forms.BoundField]:
        return [self[name] for name in ATROPOS_FIELDS]

    def episodes(self) -> EpisodeSpec | None:
        """Of the valid values; None: each completion is one turn."""
        values: dict[str, Any] = getattr(self, "cleaned_data", {})
        version, kind = values.get("environment"), values.get("driven_by")
        if version is None and not kind:
            return None
        spec = version.episode_spec() if version is not None else EpisodeSpec()
        coefficient = values.get("turn_advantage_coef")
        return replace(
            spec,
            limits=replace(spec.limits, **dict(_overridden(values))),
            turn_advantage_coef=spec.turn_advantage_coef if coefficient is None else coefficient,
            chat_template=str(values.get("tool_template") or ""),
            gateway=section_of("episodes.gateway", values) if kind else None,
        )


def of_spec(spec: EpisodeSpec | None, version: EnvironmentVersion | None) -> dict[str, Any]:
    """The fields' values. `version`: the run's; None: it has been deleted, or the run had none."""
    if spec is None:
        return {}
    own = version.episode_limits if version is not None else EpisodeLimits()
    values: dict[str, Any] = {
        "environment": version.pk if version is not None else None,
        "turn_advantage_coef": spec.turn_advantage_coef,
        "tool_template": spec.chat_template,
    }
    for name, limit in _LIMIT_OF.items():
        value = getattr(spec.limits, limit)
        if value != getattr(own, limit):
            values[name] = str(value).lower() if isinstance(value, bool) else value
    if spec.gateway is not None:
        values |= {s.name: getattr(spec.gateway, s.path.rpartition(".")[2]) for s in _GATEWAY}
    return values


def _overridden(values: Mapping[str, Any]) -> Iterator[tuple[str, Any]]:
    for name, limit in _LIMIT_OF.items():
        if (value := values.get(name)) not in (None, ""):
            yield limit, value == "true" if limit == "count_outputs" else value
