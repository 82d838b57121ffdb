from __future__ import annotations

from types import SimpleNamespace

import pytest

from controlplane.accounts.models import Role
from controlplane.serving.embedded import Installation
from controlplane.serving.welcome import show_address
from tests.controlplane.people import make_user


@pytest.mark.django_db
@pytest.mark.parametrize(
    ("bind", "hosts", "hinted"),
    [("127.0.0.1", [], False), ("::1", [], False), ("0.0.0.0", [], True), ("0.0.0.0", ["box.lan"], False)],
)
def test_whoever_listens_beyond_this_machine_is_told_where_names_are_listed(settings, tmp_path, bind, hosts, hinted):
    settings.PUBLIC_HOSTS = hosts
    said: list[str] = []
    show_address(SimpleNamespace(installation=Installation(tmp_path, 8000, "", "box", None, bind=bind)), said.append)
    assert any("CONTROLPLANE_HOSTS" in line for line in said) is hinted


@pytest.mark.django_db
@pytest.mark.parametrize("password", [None, "a long password"])
def test_a_sign_in_link_is_printed_only_while_there_is_no_password(tmp_path, password):
    make_user(Role.ADMIN, password=password)
    said: list[str] = []
    show_address(SimpleNamespace(installation=Installation(tmp_path, 8000, "", "box", None)), said.append)
    assert any("sign in once" in line for line in said) is (password is None)
