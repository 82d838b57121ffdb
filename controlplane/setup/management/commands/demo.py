"""`manage.py demo`: like `up`, with a language model that learns arithmetic while you watch."""

import json
import sys
import time
from typing import Any

from django.core.management.base import BaseCommand, CommandError, CommandParser

from controlplane.setup.management.commands.up import add_serving_arguments, serving_options
from controlplane.setup.serving.claims import ServingRefused
from controlplane.setup.serving.processes import NotReady
from controlplane.setup.serving.serving import RunningServices, served, uninterrupted

ONCE_DEADLINE_S = 3600.0


class Command(BaseCommand):
    help = "Set everything up, launch the demo run, and serve until Ctrl-C, which stops the run and everything else."
    requires_system_checks: list[str] = []
    """No checks, because they load every page and the first one should appear soon. `test` runs them."""

    def add_arguments(self, parser: CommandParser) -> None:
        add_serving_arguments(parser)
        parser.add_argument("--steps", type=int, help="optimizer steps of the run (default: 300)")
        parser.add_argument(
            "--quick", action="store_true", help="use a barely pretrained model: it is ready at once but learns little"
        )
        parser.add_argument("--once", action="store_true", help="wait for the end of the run, then stop everything")
        parser.add_argument("--json", action="store_true", help="with --once: print the outcome as one JSON object")

    def handle(self, *args: Any, **options: Any) -> None:
        from controlplane.setup.serving.demo import DemoFailed

        if options["steps"] is not None and options["steps"] < 1:
            raise CommandError("--steps must be at least 1.")
        self.to_stderr = options["json"]
        outcome: dict[str, Any] | None = None
        try:
            with served(serving_options("demo", options), self.say) as serving:
                outcome = self._run(serving, options)
        except (ServingRefused, NotReady, DemoFailed) as error:
            raise CommandError(str(error)) from None
        except KeyboardInterrupt:
            self.say("Stopped.")
            sys.exit(130 if options["once"] else 0)
        if outcome is not None:
            self._show(outcome, as_json=options["json"])

    def _run(self, serving: RunningServices, options: dict[str, Any]) -> dict[str, Any] | None:
        from django.urls import reverse

        from controlplane.setup.serving import leftover
        from controlplane.setup.serving.demo import Demo
        from controlplane.setup.serving.outcome import outcome
        from controlplane.setup.serving.welcome import owner, show_address
        from runs.engine.models import Attempt
        from runs.engine.states import ACTIVE

        page_at = time.time()
        show_address(serving, self.say, to=reverse("demo_run"))
        user = owner()
        try:
            run = Demo(serving, user, self.say, quick=options["quick"]).launch(options["steps"])
            self.say(f"Demo run: {serving.installation.control_url}/runs/{run.pk}/")
            if not options["once"]:
                self.say("Ctrl-C stops the run and everything else.")
                serving.watch()
            live = Attempt.objects.filter(run=run, status__in=ACTIVE)
            if not serving.watch_until(lambda: not live.exists(), ONCE_DEADLINE_S):
                self.say(f"The run has not ended after {ONCE_DEADLINE_S / 60:.0f} minutes.")
        finally:
            with uninterrupted(self.say):
                leftover.stop_all(serving, user, self.say)
        run.refresh_from_db()
        return outcome(run, page_at, serving.installation.runs_dir)

    def _show(self, outcome: dict[str, Any], *, as_json: bool) -> None:
        if as_json:
            self.stdout.write(json.dumps(outcome))
        else:
            for key, value in outcome.items():
                self.say(f"{key:<22} {value}")
        sys.exit(0 if outcome["status"] == "succeeded" else 1)

    def say(self, text: str) -> None:
        stream = self.stderr if self.to_stderr else self.stdout
        stream.write(text, str)  # not coloured: Django's standard error is red, and these aren't errors
        stream.flush()
