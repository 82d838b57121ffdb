"""`manage.py link`: a one-time sign-in link for an admin who can't sign in."""

from pathlib import Path
from typing import Any

from django.conf import settings
from django.core.management.base import BaseCommand, CommandError, CommandParser

from controlplane.setup.serving.claims import serving_url


class Command(BaseCommand):
    help = "Print a sign-in link that works once, within 10 minutes."

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument("name", nargs="?", help="the user to sign in (default: the first admin)")

    def handle(self, *args: Any, **options: Any) -> None:
        from controlplane.platform.accounts.models import User
        from controlplane.platform.accounts.onetime import make_link
        from controlplane.setup.serving.welcome import owner

        url = serving_url(Path(settings.DATA_DIR)) or settings.PUBLIC_URL
        if not url:
            raise CommandError(
                f"Nothing serves {settings.DATA_DIR}. Start `manage.py up`, then request a link. If the web runs "
                "alone behind a proxy, set CONTROLPLANE_URL to the address that people use."
            )
        name = options["name"]
        user = User.objects.filter(username=name, is_active=True).first() if name else owner()
        if user is None:
            raise CommandError(f"There is no active user {name}.")
        self.stdout.write(make_link(user, url))
