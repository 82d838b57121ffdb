"""`manage.py token`: an API token without a browser, for administrators of the installation."""

from typing import Any

from django.core.management.base import BaseCommand, CommandError, CommandParser


class Command(BaseCommand):
    help = "Create an API token and print it; it is shown only once. Revoke it under Settings, API tokens."

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument("name", nargs="?", help="the user to act as (default: the first admin)")
        parser.add_argument("--scope", default="read", help="read, operate or admin, within the user's role")
        parser.add_argument("--days", default=30, type=int, help="how long it is valid: 7, 30, 90 or 365")

    def handle(self, *args: Any, **options: Any) -> None:
        from controlplane.platform.accounts import api_tokens
        from controlplane.platform.accounts.forms import ApiTokenForm
        from controlplane.platform.accounts.models import User
        from controlplane.setup.serving.welcome import owner

        name = options["name"]
        user = User.objects.filter(username=name, is_active=True).first() if name else owner()
        if user is None:
            raise CommandError(f"There is no active user {name}.")
        form = ApiTokenForm(user, {"name": "manage.py token", "scope": options["scope"], "days": options["days"]})
        if not form.is_valid():
            raise CommandError(
                " ".join(f"--{field}: {error}" for field, errors in form.errors.items() for error in errors)
            )
        try:
            _, plaintext = api_tokens.make(user, form.cleaned_data["name"], options["scope"], days=options["days"])
        except api_tokens.TooMany as error:
            raise CommandError(str(error)) from None
        self.stdout.write(plaintext)
