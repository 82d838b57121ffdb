"""Commands of grpoctl; each returns its exit code, or None for success."""

import getpass
import json
import os
import sys
import uuid
from argparse import Namespace
from collections.abc import Callable, Iterable, Sequence
from datetime import datetime
from pathlib import Path
from typing import Any

import yaml

from controlplane.ctl import completion as shells
from controlplane.ctl import config, output, waiting
from controlplane.ctl.client import Client, RequestRefused, path_of

INSPECTION_S = 10
"""Maximum number of seconds to wait for a host's inspection of a model."""


def login(client: None, options: Namespace) -> None:
    url = config.check_url(options.url or os.environ.get(config.URL) or config.DEFAULT_URL)
    if options.token_file:
        token = Path(options.token_file).read_text().strip()
    elif sys.stdin.isatty():
        token = getpass.getpass(f"Enter a token for {url} (Settings, API tokens): ").strip()
    else:
        token = sys.stdin.readline().strip()
    access = config.Access(url, token)
    me = Client(access).get("me")
    path = config.store(access)
    print(f"You are {me['user']}; this token may {me['scope']} until {me['expires_at'][:10]}. Stored in {path}.")


def logout(client: None, options: Namespace) -> None:
    print("Deleted. Revoke the token under Settings, API tokens." if config.forget() else "Nothing was stored.")


def completion(client: None, options: Namespace) -> None:
    print(shells.script(options.parser(), options.shell), end="")


def mcp(client: Client, options: Namespace) -> None:
    from controlplane.ctl import mcp_server

    mcp_server.serve(client)


def operate(client: Client, options: Namespace) -> None:
    """Send the request of a command, and show the object in the response."""
    body = {name: getattr(options, name) for name in options.body}
    payload = client.ask_json(options.method, options.path.format_map(vars(options)), body)
    _show(payload.get("item", payload), options)


def list_runs(client: Client, options: Namespace) -> None:
    filters = {name: getattr(options, name) for name in ("q", "status", "tag", "by", "kind")}
    runs = list(client.items("runs", limit=options.limit, host=options.on, **filters))
    rows = [(run["id"], run["name"], waiting.describe(run), run["owner"], run["created_at"][:16]) for run in runs]
    _table(runs, ("id", "name", "status", "by", "since"), rows, options)


def get_run(client: Client, options: Namespace) -> None:
    if options.output == "yaml":
        print(client.text(path_of("runs", options.id, "spec"), format="yaml"), end="")
        return
    options.json = options.json or options.output == "json"
    _show(client.get(path_of("runs", options.id)), options)


def part_of_run(client: Client, options: Namespace) -> None:
    path = path_of("runs", options.id, options.part)
    if options.part == "completions":
        content: Any = list(client.items(path, limit=options.limit, step=options.step, source=options.source))
    elif options.part == "events":
        content = list(client.items(path, limit=options.limit))
    else:
        content = client.get(path)
        content = content.get("items", content)
    if options.json:
        output.as_json(content)
    else:
        print(output.without_controls(yaml.safe_dump(content, sort_keys=False, allow_unicode=True)), end="")


def change_run(client: Client, options: Namespace) -> None:
    options_by_field = {
        "add_tags": options.add_tag,
        "remove_tags": options.remove_tag,
        "notes": options.notes,
        "priority": options.priority,
        "archived": options.archive,
    }
    changes = {name: value for name, value in options_by_field.items() if value is not None}
    _show(client.patch(path_of("runs", options.id), changes), options)


def delete_run(client: Client, options: Namespace) -> None:
    client.ask("DELETE", path_of("runs", options.id))
    _show(next(item for item in client.get("deleted")["items"] if item["id"] == options.id), options)


def purge(client: Client, options: Namespace) -> None:
    client.ask("DELETE", path_of("deleted", options.kind, options.id))
    _say("It will be deleted permanently once its hosts are reachable.")


def launch(client: Client, options: Namespace) -> int | None:
    document = _read(options.file) if options.file else ""
    body: dict[str, Any] = {
        "document": document,
        "set": dict(map(_pair, options.set)),
        "name": options.name or "",
        "host": options.host,
        "priority": options.priority,
        "accept_notes": options.accept_notes,
        "kind": "check" if options.check or _kind(document) == "check" else "train",
    }
    if options.preflight:
        result = client.post("preflight", body)
        for _ in range(INSPECTION_S):
            if not result.get("asks"):
                break
            client.pause(1)
            result = client.post("preflight", body)
        if options.json:
            output.as_json(result)
        else:
            _print_findings(result, file=sys.stdout)
        return None if result["launchable"] else waiting.REFUSED
    # With a key, a request that is repeated after a lost response launches only one run.
    key = options.key or str(uuid.uuid4())
    result = client.post("runs", body, headers={"Idempotency-Key": key})
    run = result["run"]
    if options.wait:
        _say(f"{run['id']}  {client.url}{run['page']}")
        return _wait(client, run["id"], options)
    if options.json:
        output.as_json(result)
    else:
        _print_findings(result, file=sys.stderr)
        print(run["id"])
        _say(f"{'Launched' if result['launched'] else 'Already launched'}: {client.url}{run['page']}")
    return None


def wait(client: Client, options: Namespace) -> int:
    return _wait(client, options.id, options)


def stop(client: Client, options: Namespace) -> None:
    result = client.post(path_of("runs", options.id, "stop"), {"mode": "now" if options.now else "save"})
    if options.wait:
        waiting.until_end(client, options.id, _say, patience=options.patience)
        receipts = client.get(path_of("runs", options.id, "receipts"))["items"][:1]
        _show(receipts[0] if receipts else {}, options, output.as_yaml)
    elif options.json:
        output.as_json(result)
    else:
        _say("Stop requested." if result["changed"] else "A stop was already requested, or the run has ended.")
        print(waiting.describe(result["run"]))


def resume(client: Client, options: Namespace) -> int | None:
    body = {"checkpoint": options.checkpoint} if options.checkpoint else {}
    run = client.post(path_of("runs", options.id, "resume"), body)
    if options.wait:
        return _wait(client, options.id, options)
    _show(run, options)
    return None


def logs(client: Client, options: Namespace) -> None:
    if options.json:
        output.as_json(client.get(path_of("runs", options.id, "logs", options.name), attempt=options.attempt))
    else:
        waiting.follow_log(client, options.id, options.name, options.attempt, follow=options.follow)


def metrics(client: Client, options: Namespace) -> None:
    if not options.names:
        items = client.get(path_of("runs", options.id, "metrics"))["items"]
        return _list(items, ("name", "kind", "points"), options)
    payload = client.get(
        path_of("runs", options.id, "series"), metrics=",".join(options.names), points=max(2, options.points)
    )
    rows = [
        (name, step, value)
        for name, points in payload["series"].items()
        for step, value in zip(points["step"], points["value"], strict=True)
    ]
    return _table(payload, ("metric", "step", "value"), rows, options)


def list_items(client: Client, options: Namespace) -> None:
    _list(list(client.items(options.listed, limit=1000)), options.columns, options)


def get_item(client: Client, options: Namespace) -> None:
    items = client.get(path_of(options.listed, options.id))["items"]
    if getattr(options, "output", "") == "yaml" and items:
        print(client.text(path_of("rewards", options.id, items[0]["version"], "yaml")), end="")
    else:
        _show(items, options, output.as_yaml)


def create_item(client: Client, options: Namespace) -> None:
    path = path_of(options.listed, options.version_of) if options.version_of else options.listed
    _show(client.post(path, {"document": _read(options.file)})["item"], options)


def api(client: Client, options: Namespace) -> None:
    body = None
    if options.data:
        try:
            body = json.loads(_read(options.data))
        except ValueError as error:
            raise RequestRefused(0, f"{options.data} is not valid JSON: {error}.", "", "") from None
    response = client.ask(options.method or ("POST" if options.data else "GET"), options.path, body)
    if response.headers.get("Content-Type", "").startswith("application/json"):
        output.as_json(response.json())
    else:
        print(output.without_controls(response.text), end="")


def upload(client: Client, options: Namespace) -> int | None:
    path = path_of("datasets", options.version_of, "upload") if options.version_of else "datasets/upload"
    with Path(options.file).open("rb") as file:
        fields = {"name": options.name} if options.name else {}
        item = client.post(path, files={"file": (Path(options.file).name, file)}, data=fields)["item"]
    if options.map:
        path = path_of("datasets", item["dataset"], item["version"])
        _when_checked(client, path)
        client.post(f"{path}/mapping", {"values": dict(map(_pair, options.map))})
        item = _when_checked(client, path)
    _show(item, options)
    return waiting.REFUSED if item["status"] == "invalid" else None


def rows(client: Client, options: Namespace) -> None:
    items = list(client.items(path_of("datasets", options.id, options.version, "rows"), limit=options.limit))
    _show(items, options, output.as_yaml)


def drain(client: Client, options: Namespace) -> None:
    hosts = client.get("hosts")["items"]
    host_id = next((host["id"] for host in hosts if options.host in (host["name"], str(host["id"]))), None)
    if host_id is None:
        raise RequestRefused(404, f"There is no host {options.host}.", "host", "grpoctl hosts lists them.")
    _show(client.patch(path_of("hosts", host_id), {"draining": options.draining})["item"], options)


def _wait(client: Client, run_id: str, options: Namespace) -> int:
    code, run = waiting.until_end(client, run_id, _say, patience=options.patience)
    if options.json:
        output.as_json(run)
    return code


def _when_checked(client: Client, path: str) -> dict[str, Any]:
    while (item := client.get(path)["item"])["status"] in ("fetching", "checking"):
        client.pause(1)
    return dict(item)


def _show(content: Any, options: Namespace, for_people: Callable[[Any], None] = output.facts) -> None:
    (output.as_json if options.json else for_people)(content)


def _table(content: Any, headings: Sequence[str], rows: Iterable[Sequence[Any]], options: Namespace) -> None:
    _show(content, options, lambda _: output.table(rows, headings))


def _list(items: list[dict[str, Any]], columns: Sequence[str], options: Namespace) -> None:
    cells = [[len(item[name]) if name == "gpus" else item[name] for name in columns] for item in items]
    _table(items, [name.replace("_", " ") for name in columns], cells, options)


def _print_findings(result: dict[str, Any], *, file: Any) -> None:
    stopping_fields = {finding["field"] for finding in result["findings"] if finding["grade"] == "stop"}
    for note in (note for note in result["notes"] if note["key"] not in stopping_fields):
        print(output.clean(f"{note['verdict']}: {note['key']}: {note['text']}"), file=file)
    for finding in result["findings"]:
        prefix = f"{finding['field']}: " if finding["field"] else ""
        print(output.clean(f"{finding['grade']}: {prefix}{finding['cause']} {finding['fix']}").rstrip(), file=file)


def _pair(assignment: str) -> tuple[str, Any]:
    name, equals, value = assignment.partition("=")
    if not equals:
        raise RequestRefused(0, f"{assignment} is not in the form FIELD=VALUE.", "", "")
    try:
        parsed = json.loads(value)
    except ValueError:
        parsed = value
    return name, parsed if isinstance(parsed, str | int | float | bool) or parsed is None else value


def _kind(document: str) -> str:
    try:
        tree = yaml.safe_load(document)
    except (yaml.YAMLError, ValueError, RecursionError):
        return ""
    return str(tree.get("kind")) if isinstance(tree, dict) else ""


def _read(path: str) -> str:
    return sys.stdin.read() if path == "-" else Path(path).read_text()


def _say(message: str) -> None:
    """Print a message to standard error, because standard output may be redirected to a file."""
    print(f"{datetime.now().strftime('%H:%M:%S')} {output.clean(message)}", file=sys.stderr, flush=True)
