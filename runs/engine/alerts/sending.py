"""Sending of one message to one target: to its webhook, or through the installation's mail server."""

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
"""Time limit of a request in seconds, from the DNS lookup to the last byte."""
MAX_READ = 300
"""Upper bound of the bytes read from a response. They are read because servers explain a refusal there."""
TRY_LATER = frozenset({408, 425, 429})
"""The 4xx statuses that are worth a retry."""


class NotSent(Exception):
    """Failure to deliver a message. Its text tells users why; `wait_s` is the delay that the server asks for."""

    is_final = False
    """True if a retry would fail as well."""

    def __init__(self, text: str, wait_s: float = 0.0) -> None:
        super().__init__(text)
        self.wait_s = wait_s


class Refused(NotSent):
    """Failure that a retry would not change, such as an invalid address."""

    is_final = True


def send(target: AlertTarget, lines: Sequence[AlertLine]) -> None:
    """Send one message to a target. Raises NotSent with the cause."""
    try:
        address = target.address
    except sealing.CannotOpen:
        raise Refused(
            "Its address can't be decrypted, because the installation's key has changed. Enter the address again."
        ) from None
    if target.kind == TargetKind.MAIL:
        _mail(address, lines)
    else:
        _check_status(_post(address, formatting.slack(lines), private_too=target.private_too))


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


def _check_status(response: outbound.Response) -> None:
    """Raise NotSent for an error status. With a success status, a truncated body doesn't matter."""
    if 200 <= response.status < 300:
        return
    excerpt = " ".join(response.start.decode(errors="replace").split())[:120]
    problem = f"The server answered {response.status}" + (f": {excerpt}" if excerpt.isprintable() and excerpt else ".")
    if 300 <= response.status < 400:
        raise Refused(f"The server answered {response.status}, a redirect, which is not followed.")
    if response.status in TRY_LATER or response.status >= 500:
        wait = response.headers.get("Retry-After", "")
        raise NotSent(problem, float(wait) if wait.isdecimal() else 0.0)
    raise Refused(problem)


def _mail(address: str, lines: Sequence[AlertLine]) -> None:
    if not settings.EMAIL_HOST:
        raise Refused("This installation has no mail server. Set CONTROLPLANE_SMTP_HOST.")
    subject, message = formatting.mail(lines)
    recipients = [part.strip() for part in address.split(",")]
    try:
        EmailMessage(subject, message, settings.DEFAULT_FROM_EMAIL, recipients).send()
    except BadHeaderError:
        raise Refused("The address contains a line break.") from None
    except smtplib.SMTPResponseException as error:
        reply = error.smtp_error.decode(errors="replace") if isinstance(error.smtp_error, bytes) else error.smtp_error
        message = f"The mail server answered {error.smtp_code}: {' '.join(str(reply).split())[:200]}"
        raise (Refused if error.smtp_code >= 500 else NotSent)(message) from None
    except smtplib.SMTPRecipientsRefused as error:
        raise Refused(f"The mail server rejected {', '.join(error.recipients)}.") from None
    except (smtplib.SMTPException, OSError) as error:
        raise NotSent(f"The message couldn't be mailed: {' '.join(str(error).split())[:200]}") from None
