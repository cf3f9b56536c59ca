"""A server that speaks as the Hugging Face hub does, as far as folders of files need it."""

import base64
import hashlib
import json
import re
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

Files = dict[str, bytes]
CREATED = {".gitattributes": b"*.safetensors filter=lfs diff=lfs merge=lfs -text\n"}


def sha1(*parts: object) -> str:
    return hashlib.sha1(repr(parts).encode()).hexdigest()


@dataclass
class Hub:
    """What the server holds, what it was asked, and how it harms what it sends."""

    url: str = ""
    repositories: dict[str, dict[str, str]] = field(default_factory=dict)
    """Repository -> branch -> commit."""
    commits: dict[str, Files] = field(default_factory=dict)
    private: dict[str, bool] = field(default_factory=dict)
    messages: list[str] = field(default_factory=list)
    requests: list[str] = field(default_factory=list)
    tokens: set[str] = field(default_factory=set)
    uploads: Files = field(default_factory=dict)
    harm: Callable[[str, bytes], bytes] | None = None
    """What is sent in place of a file; its stated length stays."""
    status: int | None = None
    """What every request is answered with."""

    def files(self, repo: str, branch: str = "main") -> Files:
        return self.commits[self.repositories[repo][branch]]

    def commit(self, repo: str, branch: str, files: Files) -> str:
        oid = sha1(repo, branch, sorted(files.items()), len(self.commits))
        self.commits[oid] = files
        self.repositories[repo][branch] = oid
        return oid

    def find(self, repo: str, revision: str) -> str | None:
        branches = self.repositories.get(repo, {})
        known = branches.get(revision, revision)
        return known if branches and known in self.commits else None


class _Handler(BaseHTTPRequestHandler):
    hub: Hub

    def log_message(self, *args: Any) -> None:
        pass

    def answer(self, status: int, content: Any = None, **headers: str) -> None:
        body = content if isinstance(content, bytes) else json.dumps(content).encode()
        headers = {"Content_Length": str(len(body)), **headers}
        self.send_response(status)
        for name, value in headers.items():
            self.send_header(name.replace("_", "-"), value)
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(body)

    def missing(self, what: str) -> None:
        kind = {"X_Error_Code": f"{what}NotFound", "X_Error_Message": f"{what} not found"}
        self.answer(404, {"error": f"{what} not found"}, **kind)

    def handle_any(self) -> None:
        body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
        path = self.path.partition("?")[0]
        self.hub.requests.append(f"{self.command} {path}")
        if token := self.headers.get("Authorization"):
            self.hub.tokens.add(token)
        if self.hub.status is not None:
            self.answer(self.hub.status, {"error": "out of order"})
            return
        for pattern, respond in ROUTES.items():
            if found := re.fullmatch(pattern, f"{self.command} {path}"):
                respond(self, body, *found.groups())
                return
        self.answer(501, {"error": f"the stub does not know {self.command} {path}"})

    do_GET = do_HEAD = do_POST = do_PUT = handle_any  # noqa: N815 - names of the base class

    def create(self, body: bytes) -> None:
        asked = json.loads(body)
        repo = "/".join(filter(None, [asked.get("organization"), asked["name"]]))
        url = {"url": f"{self.hub.url}/{repo}", "id": repo}
        if repo in self.hub.repositories:
            self.answer(409, url)
            return
        self.hub.repositories[repo] = {}
        # The name of the field differs between versions of the client.
        self.hub.private[repo] = asked.get("private") or asked.get("visibility") == "private"
        self.hub.commit(repo, "main", dict(CREATED))
        self.answer(200, url)

    def branch(self, body: bytes, repo: str, name: str) -> None:
        branches = self.hub.repositories[repo]
        if name in branches:
            self.answer(409, {"error": "Reference already exists"})
            return
        branches[name] = branches["main"]
        self.answer(200, {})

    def info(self, body: bytes, repo: str, revision: str | None = None) -> None:
        if repo not in self.hub.repositories:
            self.missing("Repo")
        elif (commit := self.hub.find(repo, revision or "main")) is None:
            self.missing("Revision")
        else:
            siblings = [{"rfilename": name} for name in self.hub.commits[commit]]
            told = {"id": repo, "sha": commit, "siblings": siblings}
            self.answer(200, told | {"private": False, "tags": [], "downloads": 0, "likes": 0})

    def tree(self, body: bytes, repo: str, revision: str) -> None:
        commit = self.hub.find(repo, revision)
        if commit is None:
            self.missing("Revision")
            return
        entries = [
            {"type": "file", "path": name, "oid": sha1(content), "size": len(content)}
            for name, content in self.hub.commits[commit].items()
        ]
        self.answer(200, entries)

    def preupload(self, body: bytes, repo: str, revision: str) -> None:
        if self.hub.find(repo, revision) is None:
            self.missing("Revision")
            return
        modes = [
            {
                "path": file["path"],
                "uploadMode": "lfs" if file["path"].endswith(".safetensors") else "regular",
                "shouldIgnore": False,
            }
            for file in json.loads(body)["files"]
        ]
        self.answer(200, {"files": modes})

    def batch(self, body: bytes, repo: str) -> None:
        objects = [
            {
                "oid": asked["oid"],
                "size": asked["size"],
                "actions": {"upload": {"href": f"{self.hub.url}/upload/{asked['oid']}"}},
            }
            for asked in json.loads(body)["objects"]
        ]
        self.answer(200, {"transfer": "basic", "objects": objects})

    def upload(self, body: bytes, oid: str) -> None:
        assert hashlib.sha256(body).hexdigest() == oid
        self.hub.uploads[oid] = body
        self.answer(200, {})

    def validate(self, body: bytes) -> None:
        # As the hub does: a card without a front matter, or one that is no YAML, is refused.
        good = json.loads(body)["content"].startswith("---\n")
        errors = [] if good else [{"message": "no front matter"}]
        self.answer(200 if good else 400, {"errors": errors, "warnings": []})

    def write(self, body: bytes, repo: str, revision: str) -> None:
        if (parent := self.hub.find(repo, revision)) is None:
            self.missing("Revision")
            return
        files = dict(self.hub.commits[parent])
        for line in body.splitlines():
            step = json.loads(line)
            value = step["value"]
            if step["key"] == "header":
                self.hub.messages.append(value["summary"])
            elif step["key"] == "file":
                files[value["path"]] = base64.b64decode(value["content"])
            elif step["key"] == "lfsFile":
                files[value["path"]] = self.hub.uploads[value["oid"]]
            else:
                assert step["key"] == "deletedFile"
                del files[value["path"]]
        oid = self.hub.commit(repo, revision, files)
        told = {"commitUrl": f"{self.hub.url}/{repo}/commit/{oid}", "commitOid": oid}
        self.answer(200, told | {"hookOutput": ""})

    def resolve(self, body: bytes, repo: str, revision: str, name: str) -> None:
        commit = self.hub.find(repo, revision)
        if repo not in self.hub.repositories:
            self.missing("Repo")
        elif commit is None:
            self.missing("Revision")
        elif name not in self.hub.commits[commit]:
            self.missing("Entry")
        else:
            content = self.hub.commits[commit][name]
            sent = content if self.hub.harm is None else self.hub.harm(name, content)
            etag = f'"{hashlib.sha256(content).hexdigest()}"'
            length = {"Content_Length": str(len(content)), "Accept_Ranges": "bytes"}
            self.answer(200, sent, **length, ETag=etag, X_Repo_Commit=commit)


ROUTES: dict[str, Callable[..., None]] = {
    r"POST /api/repos/create": _Handler.create,
    r"POST /api/models/([\w-]+/[\w-]+)/branch/([\w-]+)": _Handler.branch,
    r"GET /api/models/([\w-]+/[\w-]+)(?:/revision/([\w-]+))?": _Handler.info,
    r"GET /api/models/([\w-]+/[\w-]+)/tree/([\w-]+)": _Handler.tree,
    r"POST /api/models/([\w-]+/[\w-]+)/preupload/([\w-]+)": _Handler.preupload,
    r"POST /api/models/([\w-]+/[\w-]+)/commit/([\w-]+)": _Handler.write,
    r"POST /api/validate-yaml": _Handler.validate,
    r"POST /([\w-]+/[\w-]+)\.git/info/lfs/objects/batch": _Handler.batch,
    r"PUT /upload/([0-9a-f]+)": _Handler.upload,
    r"(?:GET|HEAD) /([\w-]+/[\w-]+)/resolve/([\w-]+)/(.+)": _Handler.resolve,
}


@contextmanager
def running_hub() -> Iterator[Hub]:
    """Run a hub on this machine, with no repository."""
    hub = Hub()
    handler = type("Handler", (_Handler,), {"hub": hub})
    with ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        hub.url = f"http://127.0.0.1:{server.server_port}"
        thread = threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True)
        thread.start()
        try:
            yield hub
        finally:
            server.shutdown()
            thread.join()
