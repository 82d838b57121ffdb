"""The sections of a run's frozen spec, as rows of (label, value)."""

from django.urls import reverse
from django.utils.html import format_html, format_html_join
from django.utils.safestring import SafeString

from controlplane.catalogue.environments.models import EnvironmentVersion
from controlplane.platform.templatetags.figures import duration, sig
from controlplane.platform.templatetags.optional import count, link
from runs.engine.models import Run
from runs.engine.spec import mixed_versions
from runs.pages.run_page import limits
from workers.contract.run import mixing
from workers.contract.run.episodes import EpisodeSpec, GatewaySpec
from workers.contract.run.hardware import HardwareSpec, ServerSpec
from workers.contract.run.prompts import PromptsSpec
from workers.contract.run.spec import RunSpec

Fact = tuple[str, str | SafeString]

ROLLOUTS = {"colocate": "vLLM inside the trainer", "transformers": "the trainer itself"}
SYNCS = {"lora": "LoRA adapter by HTTP"}


def model_and_data(run: Run, spec: RunSpec) -> list[Fact]:
    correction = spec.grpo.get("vllm_importance_sampling_mode", "")
    return _non_empty(
        ("Model", _code(spec.model.path, f" at {spec.model.revision}" if spec.model.revision else "")),
        ("LoRA", _lora(spec)),
        ("Starts with", spec.start_from and format_html("the weights of <code>{}</code>", spec.start_from)),
        ("Attention", spec.attn_implementation),
        ("Dataset", _data(run, spec)),
        ("Mixed from", _mix(run, spec)),
        ("Choice of prompts", _choice(spec.prompts) if spec.prompts.on else None),
        ("Scoring", "groups are scored while others are being generated" if spec.rewards_beside else None),
        ("Generation", _code(correction, before="one step ahead, corrected by ") if spec.ahead else None),
        ("Checkpoints kept", _checkpoints(spec)),
        ("Automatic resumes", _resumes(spec)),
        (
            "Limits",
            format_html_join(SafeString("<br>"), "{}", ((line,) for line in limits.sentences(spec.limits))) or "none",
        ),
        (
            "Also sent to",
            format_html_join(", ", "<code>{}</code>", ((sink.kind,) for sink in spec.sinks)) or "nothing else",
        ),
        (
            "Stall timeout",
            f"after {spec.hang.after:g} times the usual duration without a step, "
            f"{'the run ends' if spec.hang.stop else 'the stall is reported'}",
        ),
        ("SHA-256", format_html('<code class="cut">{}</code>', spec.data.sha256)),
    )


def hardware(spec: HardwareSpec) -> list[Fact]:
    server = spec.server
    return _non_empty(
        ("Profile", spec.profile),
        ("Completions by", _rollout(spec)),
        ("Trainer", f"{count(spec.trainer_gpus, 'GPU,GPUs') or 'CPU'}, {count(spec.processes, 'process,processes')}"),
        ("Servers" if server and server.servers > 1 else "Server", _server(server) if server else None),
        ("Sharded by", _shared(spec) if spec.strategy != "none" else None),
        ("Base model", f"in {spec.quantization}" if spec.quantization != "none" else None),
        ("Precision", str(spec.precision)),
        ("Optimizer", str(spec.optimizer)),
    )


def episodes(spec: EpisodeSpec, version: EnvironmentVersion | None) -> list[Fact]:
    """Return the facts about episodes. `version` is the environment's row, or None if it has been deleted."""
    bounds = spec.limits
    return _non_empty(
        *(_gateway(spec.gateway) if spec.gateway else ()),
        ("Environment", _environment(spec, version) if spec.name else None),
        *((_code(part.name), part.function) for part in spec.parts),
        *(
            ("Corpus", f"{corpus.name} v{corpus.version}, {sig(corpus.documents, 9)} documents")
            for corpus in spec.corpora
        ),
        (
            "Limits",
            f"{count(bounds.turns, 'turn,turns')}, {count(bounds.calls, 'call,calls')} per turn, "
            f"{bounds.output_tokens} tokens per result, {duration(bounds.call_s)} per call, "
            f"{duration(bounds.episode_s)} per episode, {bounds.at_once} concurrent calls",
        ),
        (
            "Results",
            "count toward the completion length"
            if bounds.count_outputs
            else "don’t count toward the completion length: only what the model writes does",
        ),
        ("Turn advantage", f"weight {spec.turn_advantage_coef:.3g}, with rewards that score each turn"),
        ("Chat template", f"{spec.chat_template}, TRL’s" if spec.chat_template else None),
    )


def _non_empty(*rows: tuple[str, str | SafeString | None]) -> list[Fact]:
    return [(label, value) for label, value in rows if value]


def _code(text: str, after: str = "", before: str = "") -> SafeString:
    return format_html("{}<code>{}</code>{}", before, text, after)


def _lora(spec: RunSpec) -> str:
    if spec.lora is None:
        return "off: all weights are trained"
    dropout = f", dropout {spec.lora.dropout}" if spec.lora.dropout else ""
    return f"r {spec.lora.r}, α {spec.lora.alpha}{dropout}, on {', '.join(spec.lora.target_modules)}"


def _data(run: Run, spec: RunSpec) -> SafeString:
    address = reverse("dataset", args=[run.dataset_version.dataset_id]) if run.dataset_version else ""
    evaluated_note = f", {spec.data.eval_rows} evaluated" if spec.data.eval_rows else ""
    return format_html(
        '<a href="{}">{}</a> v{}, {} rows{}',
        address,
        spec.data.name,
        spec.data.version,
        sig(spec.data.rows, 9),
        evaluated_note,
    )


def _mix(run: Run, spec: RunSpec) -> SafeString:
    """List the datasets of a mix with their shares; empty without a mix."""
    shares = mixing.shares([source.weight for source in spec.data.every_source])
    lines = []
    for version, source, share in zip(mixed_versions(run), spec.data.every_source, shares, strict=True):
        title = f"{source.name} v{source.version}"
        address = reverse("dataset_version", args=[version.dataset_id, version.number]) if version else ""
        bound = f", at most {source.max_rows:,} rows" if source.max_rows else ""
        prompt = ", with a system prompt of its own" if source.system_prompt else ""
        lines.append((link(address, title), f"{100 * float(share):.3g} %", bound, prompt))
    return format_html_join("; ", "{} {}{}{}", lines) if spec.data.sources else SafeString("")


def _choice(prompts: PromptsSpec) -> SafeString:
    replacement_note = sampling_note = SafeString("")
    if prompts.extra_rounds:
        pool = format_html(" of <code>{}</code>", prompts.spread_in) if prompts.spread_in else ""
        rounds = count(prompts.extra_rounds, "extra round,extra rounds")
        replacement_note = format_html("groups without spread{} are replaced, with up to {}", pool, rounds)
    if prompts.by_difficulty:
        sampling_note = format_html("sampled by difficulty, with a minimum weight of {}", sig(prompts.least_weight))
    return format_html_join("; ", "{}", ((part,) for part in (replacement_note, sampling_note) if part))


def _checkpoints(spec: RunSpec) -> SafeString:
    limit = spec.grpo.get("save_total_limit")
    best_note = format_html(", and the best by <code>{}</code>", spec.keep_best) if spec.keep_best else ""
    return format_html("{}{}", f"the newest {limit}" if limit else "all", best_note)


def _resumes(spec: RunSpec) -> str:
    recovery = spec.recovery
    return f"up to {recovery.resumes}, the first after {duration(recovery.pause_s)}" if recovery.resumes else "off"


def _rollout(spec: HardwareSpec) -> str:
    server = spec.vllm_server
    if server is None:
        return ROLLOUTS.get(spec.rollout, "a vLLM server")
    servers = f"{server.servers} vLLM servers" if server.servers > 1 else "a vLLM server"
    if server.attached:
        return f"{servers} not started by the run"
    return f"{servers} on the trainer’s own GPUs" if server.shared else servers


def _server(server: ServerSpec) -> str:
    sync = SYNCS.get(server.weight_sync, "all weights by NCCL")
    if server.attached:
        return f"{', '.join(server.attached)}, {sync}"
    per_server = " each" if server.servers > 1 else ""
    parallel = f", tensor parallel {server.tensor_parallel}" if server.tensor_parallel > 1 else ""
    return f"{server.gpus} GPU{'s' if server.gpus != 1 else ''}{per_server}{parallel}, {sync}"


def _shared(spec: HardwareSpec) -> str:
    config_note = " with its own DeepSpeed config" if spec.deepspeed else ""
    offload = f", {spec.offload} in the host’s memory" if spec.offload != "none" else ""
    return f"{spec.strategy}{config_note}{offload}"


def _gateway(gateway: GatewaySpec) -> list[Fact]:
    atropos = gateway.kind == "atropos"
    driver = "agents through the run’s endpoint"
    if atropos:
        driver = f"Atropos environments, with at most {gateway.max_token_len} tokens"
    reach = ", reachable from other machines" if gateway.open_beyond_loopback else ""
    limit = "not limited"
    if gateway.requests:
        limit = f"{gateway.requests} per {duration(gateway.interval_s)}; the others wait"
    answers_note = "with the answer and the tests" if gateway.shows_answer else "without the answer and the tests"
    return [
        ("Driven by", f"{driver}, {duration(gateway.session_s)} per session{reach}"),
        *([("Requests", limit)] if atropos else []),
        ("A task shows", f"the prompt and the row’s other columns, {answers_note}"),
    ]


def _environment(spec: EpisodeSpec, version: EnvironmentVersion | None) -> SafeString:
    is_deleted = version is None or version.environment.deleted_at
    deleted = SafeString(' <span class="muted">deleted since</span>') if is_deleted else ""
    return format_html("{} v{}{}", spec.name, spec.version, deleted)
