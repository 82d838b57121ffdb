"""`manage.py up`: serves the control plane and acts as a host on this machine, until Ctrl-C."""

from typing import Any

from django.core.management.base import BaseCommand, CommandError, CommandParser
from django.db import connection

from controlplane.setup.serving.claims import ServingRefused
from controlplane.setup.serving.processes import NotReady
from controlplane.setup.serving.serving import Options, RunningServices, served, uninterrupted


class Command(BaseCommand):
    help = "Serve the control plane, with this machine as a host, until Ctrl-C. Runs keep training afterwards."
    requires_system_checks: list[str] = []
    """No checks, because they load every page and the first one should appear soon. `test` runs them."""

    def add_arguments(self, parser: CommandParser) -> None:
        add_serving_arguments(parser)
        parser.add_argument("--stop-runs", action="store_true", help="also stop this host's runs at the end")

    def handle(self, *args: Any, **options: Any) -> None:
        try:
            with served(serving_options("up", options), self.say) as serving:
                self._serve(serving, stop_runs=options["stop_runs"])
        except (ServingRefused, NotReady) as error:
            raise CommandError(str(error)) from None
        except KeyboardInterrupt:
            self.say("Stopped.")

    def _serve(self, serving: RunningServices, *, stop_runs: bool) -> None:
        from controlplane.setup.serving import leftover
        from controlplane.setup.serving.welcome import owner, show_address

        show_address(serving, self.say)
        if serving.installation.trainer_python is None:
            self.say("No trainer on this machine: pages work, and launches wait until `manage.py up` has installed it.")
        if running_count := leftover.training():
            self.say(f"Still training from an earlier start: {leftover.plural(running_count, 'run')}.")
        self.say("Ctrl-C stops serving" + (" and stops the runs." if stop_runs else "; runs keep training."))
        connection.close()  # it may be lost while serving; later code opens a new one
        try:
            serving.watch()
        finally:
            with uninterrupted(self.say):
                if stop_runs:
                    leftover.stop_all(serving, owner(), self.say)
                elif running_count := leftover.training():
                    left_training = leftover.plural(running_count, "run")
                    self.say(
                        f"Left training: {left_training}. The next start resumes watching. (--stop-runs stops runs.)"
                    )

    def say(self, text: str) -> None:
        self.stdout.write(text)
        self.stdout.flush()


def add_serving_arguments(parser: CommandParser) -> None:
    parser.add_argument("--port", type=int, help="default: 8000, or the next free one")
    parser.add_argument("--bind", default="127.0.0.1", help="address to listen on (default: this machine only)")
    parser.add_argument("--web-workers", type=int, default=1, help="web processes (default: 1)")


def serving_options(command: str, options: dict[str, Any]) -> Options:
    return Options(
        command=command, bind=options["bind"], port=options["port"], web_workers=max(1, options["web_workers"])
    )
