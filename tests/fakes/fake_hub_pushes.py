"""The part of the fake hub that takes pushes: accounts, repositories made and deleted, uploads and commits.

    hub.accounts["right"] = Account("olga", orgs=("Org",))
    hub.accounts["reader"] = Account("olga", role="read")
    hub.accounts["barred"] = Account("olga", creates=False)     # 403 for a new repository
    hub.accounts["keeper"] = Account("olga", deletes=False)     # 403 for a deletion
    hub.accounts["full"] = Account("olga", commits=False)       # 403 for the commit, after all uploads
    hub.accounts["cut"] = Account("olga", stores=False)         # 403 for each upload
    hub.accounts["slow"] = Account("olga", bytes_per_s=100_000)

Any other token is one that has expired: 401.
"""

from __future__ import annotations

import base64
import hashlib
import json
import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any
from urllib.parse import unquote, urlsplit

import yaml

if TYPE_CHECKING:
    from tests.fakes.fake_hub import FakeHub, Repository

CHUNK = 16_384
_PREUPLOAD = re.compile(r"/api/models/(?P<id>.+)/preupload/main")
_BATCH = re.compile(r"/(?P<id>.+)\.git/info/lfs/objects/batch")
_COMMIT = re.compile(r"/api/models/(?P<id>.+)/commit/main")
_UPLOAD = re.compile(r"/upload/(?P<token>[^/]+)/(?P<oid>[0-9a-f]{64})")


@dataclass
class Account:
    """A token's owner, and what the token may do."""

    name: str
    orgs: tuple[str, ...] = ()
    role: str = "write"
    creates: bool = True
    deletes: bool = True
    commits: bool = True
    stores: bool = True
    bytes_per_s: float | None = None

    @property
    def owns(self) -> tuple[str, ...]:
        return (self.name, *self.orgs)


class PushHandler:
    """Mixed into the fake hub's handler, whose `_json`, `_error` and `_send` it answers with."""

    hub: FakeHub

    def do_POST(self) -> None:
        self._push()

    def do_PUT(self) -> None:
        self._push()

    def do_DELETE(self) -> None:
        self._push()

    def answers_a_push(self) -> bool:
        """Answer a GET that only pushes ask."""
        if urlsplit(self.path).path != "/api/whoami-v2":
            return False
        self._push()
        return True

    def _push(self) -> None:
        path = urlsplit(self.path).path
        self.hub.requests.append((self.command, path, self.headers.get("Authorization")))
        if self.command == "PUT":
            return self._upload(path)
        content = self.rfile.read(int(self.headers.get("Content-Length") or 0))
        token = (self.headers.get("Authorization") or "").removeprefix("Bearer ")
        account = self.hub.accounts.get(token)
        if account is None:
            return self._error(401, None, "Invalid credentials in Authorization header")
        if path == "/api/whoami-v2":
            orgs = [{"name": name} for name in account.orgs]
            access = {"accessToken": {"role": account.role}}
            return self._json({"type": "user", "name": account.name, "orgs": orgs, "auth": access})
        if path == "/api/validate-yaml":
            return self._validate(json.loads(content)["content"])
        if path in ("/api/repos/create", "/api/repos/delete"):
            asked = json.loads(content)
            name = f"{asked['organization'] or account.name}/{asked['name']}"
            return (self._create if path.endswith("create") else self._delete)(account, name, asked)
        for pattern, answer in ((_PREUPLOAD, self._modes), (_BATCH, self._batch), (_COMMIT, self._commit)):
            if match := pattern.fullmatch(path):
                repository = self.hub.repositories.get(unquote(match["id"]))
                if repository is None:
                    return self._error(404, "RepoNotFound", "Repository not found")
                return answer(repository, account, token, content)
        self._error(404, None, "Not found")

    def _validate(self, card: str) -> None:
        if not card.startswith("---\n"):
            return self._json({"errors": [], "warnings": [{"message": "empty or missing yaml metadata"}]})
        try:
            wrong = "" if isinstance(yaml.safe_load(card.split("---\n")[1]), dict) else "the head is no mapping"
        except yaml.YAMLError as error:
            wrong = str(error)
        self._json({"errors": [{"message": wrong}] if wrong else [], "warnings": []}, status=400 if wrong else 200)

    def _create(self, account: Account, name: str, asked: dict[str, Any]) -> None:
        if name.split("/")[0] not in account.owns or not account.creates or account.role != "write":
            words = f'You don\'t have the rights to create a model under the namespace "{name.split("/")[0]}"'
            return self._error(403, None, words)
        if name in self.hub.repositories:
            return self._error(409, None, "You already created this model repo")
        self.hub.add(name, {".gitattributes": b""}, private=asked.get("visibility") == "private")
        self._json({"url": f"{self.hub.url}/{name}"})

    def _delete(self, account: Account, name: str, asked: dict[str, Any]) -> None:
        if not account.deletes:
            return self._error(403, None, "You don't have the rights to delete this repo")
        if self.hub.repositories.pop(name, None) is None:
            return self._error(404, "RepoNotFound", "Repository not found")
        self._json({})

    def _modes(self, repository: Repository, account: Account, token: str, content: bytes) -> None:
        from tests.fakes.fake_hub import is_large

        if repository.name.split("/")[0] not in account.owns:
            return self._error(403, None, "You don't have the rights to write to this repo")
        modes = [
            {"path": f["path"], "uploadMode": "lfs" if is_large(f["path"]) else "regular", "shouldIgnore": False}
            for f in json.loads(content)["files"]
        ]
        self._json({"files": modes})

    def _batch(self, repository: Repository, account: Account, token: str, content: bytes) -> None:
        """As with the real one, the storage takes uploads by their address, without the token in a header."""
        objects = []
        for one in json.loads(content)["objects"]:
            upload = {"href": f"{self.hub.storage_url}/upload/{token}/{one['oid']}"}
            known = one["oid"] in self.hub.uploaded
            objects.append({**one, **({} if known else {"actions": {"upload": upload}})})
        self._json({"transfer": "basic", "objects": objects})

    def _upload(self, path: str) -> None:
        match = _UPLOAD.fullmatch(path)
        account = self.hub.accounts.get(match["token"]) if match else None
        if match is None or account is None:
            return self._error(403, None, "The address has expired")
        left, content = int(self.headers.get("Content-Length") or 0), b""
        while left > 0:
            piece = self.rfile.read(min(CHUNK, left))
            if not piece:
                self.close_connection = True  # the client has gone
                return None
            content, left = content + piece, left - len(piece)
            if account.bytes_per_s and self.hub.closing.wait(len(piece) / account.bytes_per_s):
                self.close_connection = True
                return None
        if not account.stores:
            return self._error(403, None, "The address has expired")
        if hashlib.sha256(content).hexdigest() != match["oid"]:
            return self._error(400, None, "The content is another one")
        self.hub.uploaded[match["oid"]] = content
        self._json({})

    def _commit(self, repository: Repository, account: Account, token: str, content: bytes) -> None:
        if not account.commits:
            return self._error(403, None, "Private repository storage limit reached")
        files = {}
        for line in map(json.loads, content.splitlines()):
            value = line["value"]
            if line["key"] == "file":
                files[value["path"]] = base64.b64decode(value["content"])
            elif line["key"] == "lfsFile":
                files[value["path"]] = self.hub.uploaded[value["oid"]]
        repository.files.update(files)
        url = f"{self.hub.url}/{repository.name}/commit/{repository.commit}"
        self._json({"success": True, "commitOid": repository.commit, "commitUrl": url, "hookOutput": ""})
