"""Names shared by both sides: files of an attempt, event kinds, phases, stop modes, Celery tasks."""

from enum import StrEnum

SCHEMA = 1
"""Version of this module. Supervisors of another version are refused at their claim."""


class FileName:
    """Files of one attempt's folder, RUNS_DIR/<run>/<attempt number>/; each has exactly one writer."""

    SPEC = "spec.json"  # launcher, once, mode 0600: an AttemptSpec
    LOCK = "supervisor.lock"  # flock; holds {"boot_id", "pid", "start_time"} as JSON
    DOWNLOAD = "download.jsonl"  # workers.trainer.fetch: progress of the model's download
    DATASET = "dataset.parquet"  # supervisor, at the claim, from its cache or the control plane: canonical rows
    SOURCES = "sources"  # supervisor, at the claim: a folder with <sha256>.parquet of each further dataset of a mix
    CORPORA = "corpora"  # supervisor, at the claim: a folder with <sha256>.parquet of each corpus
    METRICS = "metrics.jsonl"  # trainer, rank 0: lines of the outbox without their seq, of TRAINER_KINDS
    SAMPLES = "samples.jsonl"  # trainer, rank 0: one prompt group per line
    OUTBOX = "outbox.jsonl"  # supervisor: OutboxLine objects; the first line's seq is spec.first_seq
    ACK = "outbox.ack"  # supervisor: the last seq the control plane has confirmed, as a decimal string
    PIDS = "pids.json"  # supervisor: {"boot_id", "processes": [[pid, start_time], ...]} of every descendant
    ACTIVITY = "activity-{rank}.json"  # each trainer rank: {"rank", "pid", "doing": [str], "since", "steps_since"}; the
    # times are of the monotonic clock, which all processes of a host share
    SERVERS_READY = "servers.ready"  # supervisor -> trainer that started with its vLLM servers: all of them are ready
    STOP = "STOP"  # supervisor -> trainer: exists once the trainer should save and stop
    CHAT = "chat.jsonl"  # supervisor -> program of a served model: workers.contract.reports.chat.ChatNews, one per line
    WARM = "warm.json"  # supervisor -> program of a warm server: workers.contract.stack.warm.WarmNews
    MODEL_FILES = (
        "model.files"  # supervisor of a warm server, before its start: workers.contract.stack.warm.model_files
    )
    STOP_REQUEST = "stop_request"  # stop_run -> supervisor: a StopMode, polled at each tick
    WATCHED = "watched"  # watch_run -> supervisor: somebody has opened the run's page; removed once seen
    HOST_STOP = "host_stop"  # host program -> supervisor, before SIGTERM: {"reason": an EndReason, "save", "within_s"}
    LOG_PARTS = "log_parts.jsonl"  # supervisor: the parts of its logs sent beyond their heads
    REAPED = "reaped.json"  # reaper: the receipt of an attempt whose supervisor died
    CHECKPOINTS = "checkpoints"  # trainer's output_dir
    UNFINISHED = "checkpoints/unfinished"  # trainer: a model that a job is still making; removed if it never ends
    GGUF = "gguf"  # trainer: the folder of the file that a conversion has made
    ARCHIVE = "archive.ready"  # trainer: the model was found complete, and its archive may be sent
    ARCHIVE_SENT = "archive.json"  # supervisor: {"size", "sha256" once all is sent, "refused": why it ends}
    VERSIONS = "versions.json"  # trainer, in each checkpoint: {package: version} of the stack that wrote it
    SINKS = "sinks"  # workers.sinks: a folder with state.json, and of each sink its cursor and what it keeps
    LOGS = "logs"


MAX_SERVERS = 8
MAX_GPUS = 64
SERVER_ROLES = ("vllm", *(f"vllm-{number}" for number in range(2, MAX_SERVERS + 1)))
"""Role and log name of each vLLM server of an attempt, in order."""
STACKS = "stacks"
LOG_NAMES = ("supervisor", "download", *SERVER_ROLES, "trainer", "sinks", STACKS)
"""Names of an attempt's logs, logs/<name>.log. A run has only the logs of its own processes, and stacks if it has
hung."""
LOG_LEFT_OUT = "; the host has the whole file]"
"""End of a line in the stored log that says that a part of the host's file is missing."""


class EventKind(StrEnum):
    """Kinds of OutboxLine. The first three carry numbers (`data` is {metric name: number}); the others are life-cycle
    events, which are never folded."""

    TRAIN = "train"  # one log call of the trainer; evaluation metrics keep TRL's eval_ prefix
    SYSTEM = "system"  # host/cpu_percent, host/memory_mib, gpu/<i>/memory_mib, gpu/<i>/util_percent, gpu/<i>/power_w,
    # download/done_mib, download/total_mib
    VLLM = "vllm"  # vllm/<name>; sums (requests, tokens/s) or means (shares) over several servers

    PHASE = "phase"  # data: {"phase": Phase, "detail": str, "reason": EndReason value once known}
    TRAINING = "training"  # data: {"max_steps": int, "step": int}: the trainer entered its loop -> RUNNING
    TRAINED = "trained"  # data: {"how": "completed"|"stopped"|"failed"}: the trainer left its loop, and saves no more
    STAGE = "stage"  # data: {"stage": str}: the trainer's activity before its first step
    PROCESS_STARTED = "process_started"  # data: {"role": "download"|"vllm"|"vllm-2"|...|"trainer", "pid": int}
    PROCESS_EXITED = "process_exited"  # data: {"role", "pid", "exit_code": int|None, "signal": str|None}
    SPANS = "spans"  # data: {"began": Unix seconds, "seconds": float, "spans": [[lane, phase, start, seconds], ...]}
    # of a step, see workers.contract.reports.waterfall; in separate rows, and in no timeline
    CHECKPOINT = "checkpoint"  # data: {"step", "path" (relative to the attempt folder), "bytes", "kept": steps of
    # the attempt's checkpoints that exist after it, "versions": {package: version} of the stack that wrote it}
    REWARD_FAILED = "reward_failed"  # data: {"reward", "row": int|None, "kind", "message", "count", "of"}: rows failed
    # on and scored so far; sent at the 1st, 10th, 100th ... failure
    METRICS_LEFT_OUT = "metrics_left_out"  # data: {"names": str}: metrics that a line can't hold, each named once
    STOP_SEEN = "stop_seen"  # data: {"mode": StopMode}: the supervisor has accepted the stop
    DIAGNOSED = "diagnosed"  # data: {"diagnoses": [{"id", "confidence", "values", "lines", "facts"}], "first_errors"}:
    # of workers.diagnosis, before the end of a failed attempt; lines are [file, number, text]
    HANG = "hang"  # data: {"text", "who" (waits for whom, ""), "seconds", "usual_s": number|None}: steps
    # no longer end
    LIMIT = "limit"  # data: {"text": str, "reason": EndReason value, "recommended": step|None}: ends the run; the step
    # whose model is the best by the rule, None for the last one
    RESULT = "result"  # data: {"text": str, "facts": {str: Any}}: what a job has found or created
    ANSWER = "answer"  # data: {"turn": int, "model": str, "piece": int, "text": str, "end": {} | {"why": Finish,
    # "tokens", "prompt_tokens", "seconds", "error"}}: a piece of a served model's answer; in no timeline
    NOTE = "note"  # data: {"text": str, "level": "info"|"warning"}
    ENDED = "ended"  # data: {"reason": EndReason value, "detail": str, "exit_codes": {role: int}, "receipt": Receipt}


METRIC_KINDS = frozenset({EventKind.TRAIN, EventKind.SYSTEM, EventKind.VLLM})
TRAINER_KINDS = frozenset(
    {
        EventKind.TRAIN,
        EventKind.TRAINING,
        EventKind.TRAINED,
        EventKind.STAGE,
        EventKind.SPANS,
        EventKind.CHECKPOINT,
        EventKind.REWARD_FAILED,
        EventKind.METRICS_LEFT_OUT,
        EventKind.RESULT,
        EventKind.ANSWER,
    }
)
"""The kinds of lines that the trainer writes, and nobody else."""


class StepPart(StrEnum):
    """Activities of a trainer rank."""

    PREPARING = "preparing"  # between the parts of a step
    GENERATION = "generation"
    WEIGHT_SYNC = "weight_sync"
    REWARDS = "rewards"
    LOGPS = "logps"
    UPDATE = "update"
    EVALUATION = "evaluation"
    SAVING = "saving"
    AGENTS = "agents"  # waiting for the programs that drive a run's episodes


def reward_time(name: str) -> str:
    """Return the name of the metric for the seconds that a reward takes to score a batch, on the first rank."""
    return f"time/{StepPart.REWARDS}/{name}_s"


UNHURRIED_PARTS = frozenset({StepPart.EVALUATION, StepPart.SAVING, StepPart.AGENTS})
"""Activities that make no step late, however long they take: the first two aren't part of a step, and the third depends
on others."""


class Phase(StrEnum):
    """Activities of a supervisor, which tell users more than a status does."""

    CLAIMED = "claimed"
    PREPARING = "preparing"
    FETCHING_MODEL = "fetching_model"
    VLLM_STARTING = "vllm_starting"
    VLLM_READY = "vllm_ready"
    TRAINER_STARTING = "trainer_starting"
    STOPPING = "stopping"
    VERIFYING = "verifying"
    UPLOADING = "uploading"


SAVING = "the trainer saves a checkpoint"
"""Detail of Phase.STOPPING until a process has ended."""


class StopMode(StrEnum):
    SAVE = "save"
    NOW = "now"


class Task(StrEnum):
    """Celery task names on a host's queue, `host.<host name>`."""

    LAUNCH_RUN = "workers.launch_run"  # (attempt_spec: dict, token: str)
    STOP_RUN = "workers.stop_run"  # (run_id, attempt_number, mode)
    WATCH_RUN = "workers.watch_run"  # (run_id, attempt_number)
    REAP_RUN = "workers.reap_run"  # (run_id, attempt_number, token, placement: dict)
    DELETE_MODEL = (
        "workers.delete_model"  # (folder of a checkpoint or an attempt relative to RUNS_DIR, the attempt's token)
    )
    STORE_MODEL = "workers.store_model"  # (folder of a checkpoint relative to RUNS_DIR, token of its attempt)
    INSPECT_MODEL = "workers.inspect_model"  # (inspection_id: int, model: str, revision: str, "" is the newest)


def broker_url(redis_url: str) -> str:
    """Convert a redis-py address to Celery's form: `unix:///p?db=1` becomes `redis+socket:///p?virtual_host=1`."""
    if redis_url.startswith("rediss://") and "ssl_cert_reqs=" not in redis_url:
        # redis-py checks the server's certificate; kombu checks it only on request.
        return f"{redis_url}{'&' if '?' in redis_url else '?'}ssl_cert_reqs=required"
    if not redis_url.startswith("unix://"):
        return redis_url
    path, _, query = redis_url.removeprefix("unix://").partition("?")
    return f"redis+socket://{path}?virtual_host={query.removeprefix('db=') or '0'}"


class EndReason(StrEnum):
    """Reasons why an attempt ended. Each has one final status and one sentence (see runs.engine.states)."""

    COMPLETED = "completed"
    STOPPED_BY_USER = "stopped_by_user"
    LIMIT_REACHED = "limit_reached"
    EARLY_STOPPED = "early_stopped"
    PREEMPTED = "preempted"
    HOST_SHUTDOWN = "host_shutdown"
    HOST_PREEMPTED = "host_preempted"
    CANCELLED = "cancelled"
    TRAINER_EXITED = "trainer_exited"
    NO_STEPS = "no_steps"
    SPEC_REFUSED = "spec_refused"
    CHECKPOINT_UNUSABLE = "checkpoint_unusable"
    MODEL_UNAVAILABLE = "model_unavailable"
    VLLM_EXITED = "vllm_exited"
    VLLM_NOT_READY = "vllm_not_ready"
    VLLM_HUNG = "vllm_hung"
    HUNG = "hung"
    PORT_IN_USE = "port_in_use"
    GPUS_BUSY = "gpus_busy"
    REWARD_FAILED = "reward_failed"
    ATROPOS_UNREACHABLE = "atropos_unreachable"
    OOM = "oom"
    DISK_FULL = "disk_full"
    FOLDER_LOST = "folder_lost"
    SUPERVISOR_LOST = "supervisor_lost"
    SUPERVISOR_ERROR = "supervisor_error"
    HOST_LOST = "host_lost"
    LAUNCH_FAILED = "launch_failed"
