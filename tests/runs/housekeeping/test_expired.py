from __future__ import annotations

from datetime import datetime, timedelta

import pytest
from django.contrib.sessions.backends.db import SessionStore
from django.contrib.sessions.models import Session
from django.utils import timezone

from controlplane.catalogue.joining import codes
from controlplane.catalogue.joining.models import JoinCode
from controlplane.platform.accounts import api_tokens
from controlplane.platform.accounts.models import ApiScope, ApiToken, ApiTokenAct
from runs.engine.models import ProfileTrial, Run
from runs.housekeeping import tasks
from tests.runs.builders import a_run, a_user

pytestmark = [pytest.mark.django_db, pytest.mark.usefixtures("sent")]


def ago(**time: float) -> datetime:
    return timezone.now() - timedelta(**time)


def test_expired_sessions_go_and_others_stay() -> None:
    for seconds in (-1, 3600):
        session = SessionStore()
        session.set_expiry(seconds)
        session.save()
    tasks.forget_all(timezone.now())
    assert Session.objects.count() == 1


def test_join_codes_go_a_week_after_their_end_used_or_not() -> None:
    for used_at, expires_at in ((None, ago(days=8)), (ago(days=8), ago(days=8)), (ago(days=6), ago(days=6))):
        row, _ = codes.create("", by=None)
        JoinCode.objects.filter(pk=row.pk).update(used_at=used_at, expires_at=expires_at)
    tasks.forget_all(timezone.now())
    assert JoinCode.objects.count() == 1


@pytest.mark.parametrize("column", ["expires_at", "revoked_at"])
def test_tokens_stay_for_three_months_after_their_end_with_what_was_done(column: str) -> None:
    for name, days in (("lately", 89), ("long ago", 91)):
        token, _ = api_tokens.make(a_user(), name, ApiScope.READ, days=7)
        ApiToken.objects.filter(pk=token.pk).update(**{column: ago(days=days)})
    tasks.forget_all(timezone.now())
    assert [token.name for token in ApiToken.objects.all()] == ["lately"]
    assert ApiTokenAct.objects.count() == 1


def test_the_key_of_a_launch_holds_for_a_week() -> None:
    for number, days in enumerate((6, 8)):
        run, trial = a_run(f"{days}"), ProfileTrial.objects.create(owner=a_user(), launch_key=f"trial {number}")
        Run.objects.filter(pk=run.pk).update(launch_key=f"run {number}", created_at=ago(days=days))
        ProfileTrial.objects.filter(pk=trial.pk).update(created_at=ago(days=days))
    tasks.forget_all(timezone.now())
    assert [run.name for run in Run.objects.exclude(launch_key=None)] == ["6"]
    assert ProfileTrial.objects.get(launch_key=None).created_at < ago(days=7)


def test_one_table_that_fails_does_not_keep_the_others(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(now: datetime) -> None:
        raise ValueError

    monkeypatch.setattr(codes, "forget", fail)
    Run.objects.filter(pk=a_run().pk).update(launch_key="key", created_at=ago(days=8))
    tasks.forget_all(timezone.now())
    assert Run.objects.get().launch_key is None
