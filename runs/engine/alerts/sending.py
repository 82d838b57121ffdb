"""Sending one message to one target: to its webhook, or by the installation's mail server."""

import smtplib
from collections.abc import Sequence

from django.conf import settings
from django.core.mail import EmailMessage
from django.core.mail.message import BadHeaderError

from controlplane.platform import sealing
from controlplane.platform.http import addresses
from runs.engine.alerts import formatting
from runs.engine.alerts.formatting import AlertLine
from runs.engine.alerts.models import AlertTarget, TargetKind
from workers import outbound

DEADLINE_S = 10.0
"""Seconds from looking up the webhook's name to the last byte."""
MAX_READ = 300
"""Bytes read of an answer, in which servers explain a refusal."""
TRY_LATER = frozenset({408, 425, 429})
"""The 4xx statuses that are worth a retry."""


class NotSent(Exception):
    """The message did not arrive; the text is for people. `wait_s`: the delay that the server asks for."""

    is_final = False
    """A retry would fail as well."""

    def __init__(self, text: str, wait_s: float = 0.0) -> None:
        super().__init__(text)
        self.wait_s = wait_s


class Refused(NotSent):
    """The message or the target is invalid."""

    is_final = True


def send(target: AlertTarget, lines: Sequence[AlertLine]) -> None:
    """Send one message. Raises NotSent with the cause."""
    try:
        address = target.address
    except sealing.CannotOpen:
        raise Refused(
            "Its address can't be read: the installation's key has changed. Enter the address again."
        ) from None
    if target.kind == TargetKind.MAIL:
        _mail(address, lines)
    else:
        _judge(_post(address, formatting.slack(lines), private_too=target.private_too))


def _post(address: str, message: bytes, *, private_too: bool) -> outbound.Response:
    try:
        return outbound.send(
            "POST",
            address,
            body=message,
            headers={"Content-Type": "application/json", "User-Agent": "grpo-control-plane"},
            seconds=DEADLINE_S,
            limit=MAX_READ,
            rule=addresses.rule_for(address, private_too=private_too),
        )
    except outbound.AddressRefused as error:
        raise Refused(str(error)) from None
    except outbound.OutboundError as error:
        raise NotSent(str(error)) from None


def _judge(answer: outbound.Response) -> None:
    """Raise NotSent for an error status. A good status counts even if the rest of the answer breaks off."""
    if 200 <= answer.status < 300:
        return
    excerpt = " ".join(answer.start.decode(errors="replace").split())[:120]
    text = f"The server answered {answer.status}" + (f": {excerpt}" if excerpt.isprintable() and excerpt else ".")
    if 300 <= answer.status < 400:
        raise Refused(f"The server answered {answer.status}, a redirect, which is not followed.")
    if answer.status in TRY_LATER or answer.status >= 500:
        wait = answer.headers.get("Retry-After", "")
        raise NotSent(text, float(wait) if wait.isdecimal() else 0.0)
    raise Refused(text)


def _mail(address: str, lines: Sequence[AlertLine]) -> None:
    if not settings.EMAIL_HOST:
        raise Refused("No mail server is set: CONTROLPLANE_SMTP_HOST.")
    subject, text = formatting.mail(lines)
    to = [part.strip() for part in address.split(",")]
    try:
        EmailMessage(subject, text, settings.DEFAULT_FROM_EMAIL, to).send()
    except BadHeaderError:
        raise Refused("The address has a line break.") from None
    except smtplib.SMTPResponseException as error:
        reply = error.smtp_error.decode(errors="replace") if isinstance(error.smtp_error, bytes) else error.smtp_error
        text = f"The mail server answered {error.smtp_code}: {' '.join(str(reply).split())[:200]}"
        raise (Refused if error.smtp_code >= 500 else NotSent)(text) from None
    except smtplib.SMTPRecipientsRefused as error:
        raise Refused(f"The mail server refuses {', '.join(error.recipients)}.") from None
    except (smtplib.SMTPException, OSError) as error:
        raise NotSent(f"The mail server can't be used: {' '.join(str(error).split())[:200]}") from None
