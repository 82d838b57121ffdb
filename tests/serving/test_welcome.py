from __future__ import annotations

import resource
from types import SimpleNamespace

import pytest

from controlplane.platform.accounts.models import Role
from controlplane.setup.serving.embedded import Installation
from controlplane.setup.serving.preparing import MAX_OPEN_FILES, raise_file_limit
from controlplane.setup.serving.welcome import show_address
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


def test_a_client_with_a_thousand_connections_takes_not_all_files():
    before = soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    try:
        resource.setrlimit(resource.RLIMIT_NOFILE, (min(1024, soft), hard))
        raise_file_limit()
        assert resource.getrlimit(resource.RLIMIT_NOFILE)[0] >= min(hard, MAX_OPEN_FILES)
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, before)


@pytest.mark.parametrize("proxies", ["", "10.0.0.1,10.0.0.2"])
def test_forwarded_addresses_are_believed_of_named_proxies_alone(monkeypatch, tmp_path, proxies):
    monkeypatch.setenv("CONTROLPLANE_PROXIES", proxies)
    argv = Installation(tmp_path, 8000, "", "box", None).web(SimpleNamespace(fileno=lambda: 3)).argv
    assert ("--no-proxy-headers" in argv) is not bool(proxies)
    assert (proxies in argv) is bool(proxies)
