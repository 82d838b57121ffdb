"""Text of the messages: one line per event, for Slack-compatible webhooks and for mail."""

import json
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta

from django.urls import reverse

from runs.engine.alerts.models import AlertDelivery, Topic
from runs.engine.records import RunEvent
from runs.engine.states import sentence

MAX_LINES = 12
LATE_AFTER = timedelta(minutes=5)
"""Delay after which a line includes the time of its event."""
HEADS = {
    Topic.BAD: "Alert",
    Topic.WARNING: "Warning",
    Topic.FAILED: "Failed",
    Topic.SUCCEEDED: "Finished",
    Topic.STOPPED: "Stopped",
}
TEST = "This is a test. Alerts from this installation arrive here and look like this."


@dataclass(frozen=True)
class AlertLine:
    head: str
    subject: str
    text: str
    link: str


def topic_of(event: RunEvent) -> Topic | None:
    """Find the topic of an event; return None if no target receives such events."""
    data = event.data
    if event.kind == "status" and data.get("to") in (Topic.FAILED, Topic.SUCCEEDED, Topic.STOPPED):
        return Topic(data["to"])
    if event.kind == "alert" and data.get("state") == "open" and data.get("level") in (Topic.BAD, Topic.WARNING):
        return Topic(data["level"])
    return None


def line(delivery: AlertDelivery, links_to: str, now: datetime) -> AlertLine:
    event = delivery.event
    if event is None:
        return AlertLine("Test", "alerts", TEST, links_to.rstrip("/") + reverse("alerts"))
    topic = topic_of(event)
    description = _describe_alert(event) if event.kind == "alert" else _describe_end(event)
    if now - event.at > LATE_AFTER:
        description += f" ({event.at:%Y-%m-%d %H:%M} UTC)"
    link = links_to.rstrip("/") + reverse("run", args=[event.run_id])
    return AlertLine(HEADS[topic] if topic else "Event", _one_line(event.run.name), _one_line(description), link)


def slack(lines: Sequence[AlertLine]) -> bytes:
    """Build a request body for Slack, Mattermost, Rocket.Chat, Zulip and Discord (whose address must end in /slack)."""
    rows = [f"*{_escape(x.head)}: <{x.link}|{_escape(x.subject)}>* {_escape(x.text)}" for x in lines[:MAX_LINES]]
    return json.dumps({"text": "\n".join([*rows, *_omitted_line(lines)])}).encode()


def mail(lines: Sequence[AlertLine]) -> tuple[str, str]:
    first_line = lines[0]
    remainder = f" and {len(lines) - 1} more" if len(lines) > 1 else ""
    rows = [f"{alert.head}: {alert.subject}\n{alert.text}\n{alert.link}\n" for alert in lines[:MAX_LINES]]
    return f"{first_line.head}: {first_line.subject}{remainder}"[:200], "\n".join([*rows, *_omitted_line(lines)])


def _omitted_line(lines: Sequence[AlertLine]) -> list[str]:
    return [f"… and {len(lines) - MAX_LINES} more."] if len(lines) > MAX_LINES else []


def _describe_alert(event: RunEvent) -> str:
    data = event.data
    step = f" Step {data['step']}." if data.get("step") is not None else ""
    return f"{data.get('title') or data.get('rule') or 'Health'}: {data.get('sentence') or ''}{step}"


def _describe_end(event: RunEvent) -> str:
    reason, run = event.data.get("reason"), event.run
    text = sentence(str(reason or ""))
    steps = f"Step {run.step} of {run.max_steps}." if run.step and run.max_steps else ""
    return " ".join(part for part in (text, steps, str(event.data.get("detail") or "")[:300]) if part)


def _one_line(text: str) -> str:
    return " ".join(text.split())


def _escape(text: str) -> str:
    """Escape a string for Slack and defuse mentions, since a run's name may contain anything."""
    for char, replacement in (("&", "&amp;"), ("<", "&lt;"), (">", "&gt;"), ("@", "@\N{ZERO WIDTH SPACE}")):
        text = text.replace(char, replacement)
    return text
