"""`manage.py tick`: runs one round of housekeeping, as Celery beat does every five seconds."""

from typing import Any

from django.core.management.base import BaseCommand


class Command(BaseCommand):
    help = "Run one round of housekeeping, as Celery beat does every 5 seconds."

    def handle(self, *args: Any, **options: Any) -> None:
        from django.utils import timezone

        from runs.housekeeping import tick

        tick.tick(timezone.now())
