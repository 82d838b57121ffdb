"""The argparse parser with the commands and options of grpoctl, which shell completion also uses."""

import argparse
from collections.abc import Callable
from typing import Any

from controlplane.ctl import commands
from controlplane.ctl.completion import SHELLS

EXIT_CODES = (
    "Exit codes of --wait and wait: 0 succeeded, 3 failed, 4 stopped, 5 unreachable; 1 refused, 2 invalid usage."
)
Handler = Callable[[Any, argparse.Namespace], int | None]
PARTS = {
    "health": "Show the findings of the health rules.",
    "evaluations": "Show evaluations, with the gain over the starting model.",
    "completions": "Show prompts and completions, newest first.",
    "receipts": "Show how each attempt ended, with its kill receipt.",
    "checkpoints": "List checkpoints.",
    "events": "List the newest events.",
}
"""Parts of a run, as path below the run in the API -> help text."""
RUN_ID = ("id", "the run's id")
CATALOGUE = {
    "datasets": ("datasets, each with its newest version", "dataset name version status rows"),
    "rewards": ("reward configs", "config name version id aggregation"),
    "environments": ("environments", "environment name version id"),
    "profiles": ("hardware profiles", "id name problem"),
    "models": ("saved models", "id name kind host bytes path"),
    "warm-servers": ("warm vLLM servers, and who uses them", "run model holder host gpus state used_by ends_at"),
    "deleted": (
        "recently deleted items that can be restored",
        "kind id name deleted_by purge_at restorable waits_for",
    ),
    "hosts": ("hosts", "id name in_reach draining gpus cpu_slots_free disk_free_mib"),
}
"""Lists of the API, with a description of their content and the columns of their tables."""


def parser() -> argparse.ArgumentParser:
    top = argparse.ArgumentParser(
        prog="grpoctl", description="The GRPO control plane from a terminal.", epilog=EXIT_CODES
    )
    groups = top.add_subparsers(title="commands", metavar="COMMAND", required=True)
    _access(groups)
    _runs(groups)
    _actions(groups)
    _catalogue(groups)
    return top


def _command(
    group: Any, name: str, run: Handler | None, about: str, *, json: bool = True, **defaults: Any
) -> argparse.ArgumentParser:
    parser: argparse.ArgumentParser = group.add_parser(name, help=about, description=about)
    parser.set_defaults(run=run, **defaults)
    if json:
        parser.add_argument("--json", action="store_true", help="print JSON")
    return parser


def _operation(
    group: Any, name: str, operation: str, about: str, *arguments: tuple[str, str | None], body: tuple[str, ...] = ()
) -> None:
    """Add a command for one operation of the API, such as "GET runs/{id}/disk". `arguments` are names and help texts of
    the arguments whose values are used in the path and the body."""
    method, path = operation.split()
    parser = _command(group, name, commands.operate, about, method=method, path=path, body=body)
    for argument, help_text in arguments:
        parser.add_argument(argument, help=help_text)


def _access(groups: Any) -> None:
    about = "Store the address and a token in a file that only you can read."
    login = _command(groups, "login", commands.login, about, json=False, offline=True)
    login.add_argument("--url", help="the control plane's address")
    login.add_argument("--token-file", help="read the token from this file instead of asking for it")
    _command(groups, "logout", commands.logout, "Delete what login has stored.", json=False, offline=True)
    _operation(groups, "me", "GET me", "Show whose token this is, and what it may do.")
    about = "Print the completion script for a shell."
    completion = _command(groups, "completion", commands.completion, about, json=False, offline=True)
    completion.add_argument("shell", choices=SHELLS)
    api = _command(groups, "api", commands.api, "Send any request to the API.", json=False)
    api.add_argument("path", help="as in /api/v1/openapi.json, such as users or runs/ID/evaluations")
    api.add_argument(
        "-X", "--method", choices=("GET", "POST", "PATCH", "DELETE"), help="default: POST with --data, otherwise GET"
    )
    api.add_argument("-d", "--data", metavar="FILE", help="file with the body as JSON; - for standard input")
    _command(groups, "mcp", commands.mcp, "Serve MCP clients over standard input and output.", json=False)


def _runs(groups: Any) -> None:
    runs = _command(groups, "runs", commands.list_runs, "List runs, or show one.")
    _add_filters(runs)
    inner = runs.add_subparsers(metavar="WHAT")
    list_parser = _command(inner, "list", commands.list_runs, "List runs, newest first.")
    _add_filters(list_parser)
    get = _of_run(
        inner, "get", commands.get_run, "Show a run; -o yaml prints its spec, which `grpoctl launch` accepts."
    )
    get.add_argument("-o", "--output", choices=("text", "json", "yaml"), default="text")
    for name, about in PARTS.items():
        part = _of_run(inner, name, commands.part_of_run, about)
        part.set_defaults(part=name)
        if name in ("completions", "events"):
            part.add_argument("--limit", type=_count, default=10)
        if name == "completions":
            part.add_argument("--step", type=_count)
            part.add_argument("--source", metavar="NAME", help="only prompts with this source or tag")
    change = _of_run(inner, "change", commands.change_run, "Change a run's tags, notes or priority, or archive it.")
    change.add_argument("--add-tag", action="append", default=[], metavar="TAG")
    change.add_argument("--remove-tag", action="append", default=[], metavar="TAG")
    change.add_argument("--notes")
    change.add_argument("--priority", choices=("high", "normal", "low"))
    change.add_argument("--archive", action=argparse.BooleanOptionalAction)
    _operation(inner, "rename", "PATCH runs/{id}", "Rename a run.", RUN_ID, ("name", None), body=("name",))
    about = "Show the space that a run uses on hosts, in the store and in the database."
    _operation(inner, "disk", "GET runs/{id}/disk", about, RUN_ID)
    _of_run(inner, "delete", commands.delete_run, "Delete an ended run; it can be restored for a while.")
    _operation(inner, "restore", "POST deleted/run/{id}/restore", "Restore a deleted run.", RUN_ID)


def _add_filters(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--q", help="only runs with these words in the name, id or owner")
    parser.add_argument("--status", help="only runs with this status; or active")
    parser.add_argument("--tag", help="only runs with this tag")
    parser.add_argument("--by", help="only runs of this user")
    parser.add_argument("--on", help="only runs on this host")
    parser.add_argument("--kind", help="only runs of this kind; or all")
    parser.add_argument("--limit", type=_count, default=20)


def _actions(groups: Any) -> None:
    launch = _command(groups, "launch", commands.launch, "Launch a run from a YAML, a spec or another tool's config.")
    launch.add_argument("file", nargs="?", help="the document; - for standard input")
    launch.add_argument(
        "--set", action="append", default=[], metavar="FIELD=VALUE", help="a field of New run, such as max_steps=50"
    )
    launch.add_argument("--name")
    launch.add_argument("--host", default="")
    launch.add_argument("--priority", choices=("high", "normal", "low"), default="normal")
    launch.add_argument("--check", action="store_true", help="only sample completions, to see what can be learned")
    launch.add_argument("--preflight", action="store_true", help="print preflight's findings without launching")
    launch.add_argument(
        "--accept-notes", action="store_true", help="launch even if parts of the document can't be used"
    )
    launch.add_argument("--key", help="launch at most once with this key")
    launch.add_argument("--wait", action="store_true", help="follow the run, and exit with its result")
    wait = _of_run(groups, "wait", commands.wait, "Follow a run, and exit with its result.")
    stop = _of_run(
        groups, "stop", commands.stop, "Stop a run after it has written a checkpoint, or at once with --now."
    )
    stop.add_argument("--now", action="store_true", help="kill it without a checkpoint")
    stop.add_argument("--wait", action="store_true", help="wait until it has ended, then show its receipt")
    resume = _of_run(groups, "resume", commands.resume, "Resume an ended run from a checkpoint.")
    resume.add_argument("--checkpoint", type=_count, help="the checkpoint's id; default: the last one")
    resume.add_argument("--wait", action="store_true")
    for command in (launch, wait, stop, resume):
        command.add_argument(
            "--patience", type=float, default=120.0, metavar="SECONDS", help="how long the server may be unreachable"
        )
    logs = _of_run(groups, "logs", commands.logs, "Print the end of a log; with -f, also what is added.")
    logs.add_argument("name", nargs="?", default="trainer", help="trainer, supervisor, vllm, …")
    logs.add_argument("-f", "--follow", action="store_true")
    logs.add_argument("--attempt", type=_count, default=0)
    metrics = _of_run(groups, "metrics", commands.metrics, "List the metrics of a run, or print the points of some.")
    metrics.add_argument("names", nargs="*", help="leave out to list all metrics")
    metrics.add_argument("--points", type=_count, default=20)


def _catalogue(groups: Any) -> None:
    for name, (content, columns) in CATALOGUE.items():
        listing: dict[str, Any] = {"listed": name, "columns": columns.split()}
        group = _command(groups, name, commands.list_items, f"List {content}.", **listing)
        inner = group.add_subparsers(metavar="WHAT")
        _command(inner, "list", commands.list_items, f"List {content}.", **listing)
        if name in ("datasets", "rewards", "environments"):
            get = _command(inner, "get", commands.get_item, "Show one, by its id.", listed=name)
            get.add_argument("id", type=_count)
            if name == "rewards":
                get.add_argument("-o", "--output", choices=("text", "yaml"), default="text")
        if name in ("rewards", "environments"):
            create = _command(inner, "create", commands.create_item, "Create one from a YAML file.", listed=name)
            create.add_argument("file")
            create.add_argument("--version-of", type=_count, metavar="ID", help="save it as a new version of this one")
        if name == "datasets":
            _datasets(inner)
        if name == "deleted":
            kind = ("kind", "as shown in the list")
            _operation(inner, "restore", "POST deleted/{kind}/{id}/restore", "Restore one.", kind, ("id", None))
            purge = _command(inner, "purge", commands.purge, "Delete one permanently, before its deadline.")
            purge.add_argument("kind", help="as shown in the list")
            purge.add_argument("id")
        if name == "warm-servers":
            about = "Stop one, after the run that uses it has ended."
            _operation(inner, "end", "POST warm-servers/{id}/end", about, ("id", "its run"))
        if name == "hosts":
            for action, draining in (("drain", True), ("undrain", False)):
                drain = _command(inner, action, commands.drain, f"{action.capitalize()} a host.", draining=draining)
                drain.add_argument("host", help="its name or id")


def _datasets(inner: Any) -> None:
    upload = _command(inner, "upload", commands.upload, "Upload a file as a dataset, or as a new version of one.")
    upload.add_argument("file")
    upload.add_argument("--name")
    upload.add_argument("--version-of", type=_count, metavar="ID")
    upload.add_argument(
        "--map", action="append", metavar="FIELD=COLUMN", help="such as prompt=question; then wait until it is ready"
    )
    rows = _command(inner, "rows", commands.rows, "Print the first rows of a version.")
    rows.add_argument("id", type=_count)
    rows.add_argument("version", type=_count)
    rows.add_argument("--limit", type=_count, default=5)


def _of_run(group: Any, name: str, run: Handler, about: str) -> argparse.ArgumentParser:
    command = _command(group, name, run, about)
    command.add_argument("id", help="the run's id")
    return command


def _count(text: str) -> int:
    if not (text.isascii() and text.isdecimal() and len(text) < 16):
        raise argparse.ArgumentTypeError(f"{text!r} is not a whole number")
    return int(text)
