"""`manage.py serve prepare|web|worker`: one program of the control plane in the foreground."""

from typing import Any

from django.core.management.base import BaseCommand, CommandError, CommandParser

from controlplane.setup.serving.claims import DEFAULT_PORT, ServingRefused


class Command(BaseCommand):
    help = "Run one program of the control plane in the foreground, for a container or service. `up` runs all of them."
    requires_system_checks: list[str] = []

    def add_arguments(self, parser: CommandParser) -> None:
        parts = parser.add_subparsers(dest="part", required=True)
        parts.add_parser("prepare", help="bring the database and the static files up to date, and exit")
        web = parts.add_parser("web", help="pages, websocket and the API for hosts")
        web.add_argument("--bind", default="127.0.0.1", help="address to listen on (default: this machine only)")
        web.add_argument("--port", type=int, default=DEFAULT_PORT, help=f"default: {DEFAULT_PORT}")
        web.add_argument("--web-workers", type=int, default=1, help="web processes (default: 1)")
        parts.add_parser("worker", help="background work and periodic housekeeping; one per installation")

    def handle(self, *args: Any, part: str, **options: Any) -> None:
        from controlplane.setup.serving import alone

        try:
            if part == "prepare":
                alone.prepare(self.say)
            elif part == "web":
                alone.web(options["bind"], options["port"], max(1, options["web_workers"]))
            else:
                alone.worker()
        except ServingRefused as error:
            raise CommandError(str(error)) from None

    def say(self, text: str) -> None:
        self.stdout.write(text)
        self.stdout.flush()
