"""A stand-in for the Hugging Face hub, in a thread: as much of its interface as downloads use."""

import hashlib
import json
import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread
from urllib.parse import quote, unquote, urlsplit

import pytest
from huggingface_hub import close_session, constants


@dataclass
class Repo:
    """Revisions by name, each of them files by name. `cut` says how many bytes of a file are sent before the
    connection breaks, time after time; then it is sent whole. A `status` but 200 is the only answer; one
    without `ranges` sends whole files only; parts of files come from `shift` bytes after those asked for.
    What lies `elsewhere` is sent by another address, to which the hub leads, as it does for large files."""

    revisions: dict[str, dict[str, bytes]]
    status: int = 200
    private: bool = False
    gated: bool = False
    ranges: bool = True
    shift: int = 0
    elsewhere: bool = False
    cut: dict[str, list[int]] = field(default_factory=dict)

    def commit(self, revision: str) -> str | None:
        """A hash of what is in a revision, named so or by its branch."""
        if revision in self.revisions:
            return hashlib.sha1(repr(sorted(self.revisions[revision].items())).encode()).hexdigest()
        return revision if revision in map(self.commit, self.revisions) else None

    def files(self, commit: str) -> dict[str, bytes]:
        return next(files for name, files in self.revisions.items() if self.commit(name) == commit)


class Hub:
    """The stand-in. `token` is what gets at private and gated repositories; `asked` has every request as
    (method, path, headers)."""

    token = "hf_secret"

    def __init__(self) -> None:
        self.repos: dict[str, Repo] = {}
        self.asked: list[tuple[str, str, Mapping[str, str]]] = []
        self.url = ""

    @property
    def fetched(self) -> list[str]:
        """The names of files whose content was sent up to its end, in order."""
        return [
            path.split("/resolve/")[1].partition("/")[2]
            for method, path, headers in self.asked
            if method == "GET" and "/resolve/" in path and headers.get("range", "-").endswith("-")
        ]

    def parts(self, name: str) -> list[tuple[int, int]]:
        """The first and last byte of each part of the file that was asked for."""
        asked = [headers.get("range", "-") for _, path, headers in self.asked if path.endswith(f"/{name}")]
        ranges = [asked.removeprefix("bytes=").split("-") for asked in asked if not asked.endswith("-")]
        return [(int(first), int(last)) for first, last in ranges]


def files_of(folder: Path) -> dict[str, bytes]:
    return {
        path.relative_to(folder).as_posix(): path.read_bytes() for path in folder.rglob("*") if path.is_file()
    }


@contextmanager
def serving() -> Iterator[Hub]:
    """A stand-in hub while the block runs."""
    hub = Hub()
    handler = type("Handler", (_Handler,), {"hub": hub})
    server = ThreadingHTTPServer(("127.0.0.1", 0), handler)
    hub.url = f"http://127.0.0.1:{server.server_port}"
    thread = Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    try:
        yield hub
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


def point_at(url: str, cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Let `huggingface_hub`, which read the environment when it was imported, use this hub and cache."""
    monkeypatch.setattr(constants, "ENDPOINT", url)
    monkeypatch.setattr(
        constants, "HUGGINGFACE_CO_URL_TEMPLATE", url + "/{repo_id}/resolve/{revision}/{filename}"
    )
    monkeypatch.setattr(constants, "HF_HUB_CACHE", str(cache))
    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", False)
    monkeypatch.setattr(constants, "HF_TOKEN_PATH", str(cache / "no-token"))
    monkeypatch.setattr("huggingface_hub.utils._detect_agent.detect_agent", lambda: None, raising=False)
    monkeypatch.delenv("HF_TOKEN", raising=False)
    monkeypatch.setenv("NO_PROXY", "127.0.0.1,localhost")
    close_session()


def environment_for(hub: Hub, home: Path) -> dict[str, str]:
    """The same for a process of its own."""
    return {
        "HF_ENDPOINT": hub.url,
        "HF_HOME": str(home),
        "HF_HUB_OFFLINE": "0",
        "HF_TOKEN": "",
        "NO_PROXY": "127.0.0.1,localhost",
    }


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    hub: Hub

    def do_GET(self) -> None:
        self._answer()

    def do_HEAD(self) -> None:
        self._answer()

    def log_message(self, format: str, *args: object) -> None:
        pass

    def _answer(self) -> None:
        path = unquote(urlsplit(self.path).path)
        self.hub.asked.append(
            (self.command, path, {key.lower(): value for key, value in self.headers.items()})
        )
        if match := re.fullmatch(r"/api/models/([^/]+/[^/]+)(?:/(revision|tree)/(.+))?", path):
            self._about(match[1], match[2], match[3] or "main")
        elif match := re.fullmatch(r"/([^/]+/[^/]+)/resolve/([^/]+)/(.+)", path):
            self._file(match[1], match[2], match[3])
        elif match := re.fullmatch(r"/elsewhere/([^/]+/[^/]+)/([^/]+)/(.+)", path):
            repo = self.hub.repos[match[1]]
            self._part(repo, repo.files(match[2])[match[3]], match[3], {})
        else:
            self._send(404, b"{}")

    def _repo(self, name: str) -> Repo | None:
        """The repository; answers by itself that there is none, as the hub does to strangers."""
        repo = self.hub.repos.get(name)
        if repo is None or (repo.private and not self._knows_token()):
            self._send(404 if self._knows_token() else 401, b"{}", {"X-Error-Code": "RepoNotFound"})
            return None
        if repo.status != 200:
            self._send(repo.status, b"{}", {"X-Error-Message": "Invalid credentials in Authorization header"})
            return None
        return repo

    def _knows_token(self) -> bool:
        return self.headers.get("Authorization") == f"Bearer {self.hub.token}"

    def _about(self, name: str, what: str | None, revision: str) -> None:
        if (repo := self._repo(name)) is None:
            return
        if (commit := repo.commit(revision)) is None:
            self._send(404, b"{}", {"X-Error-Code": "RevisionNotFound"})
            return
        files = repo.files(commit)
        if what == "tree":
            listed = [
                {"type": "file", "path": path, "size": len(data), "oid": hashlib.sha1(data).hexdigest()}
                for path, data in files.items()
            ]
            self._send(200, json.dumps(listed).encode())
        else:
            siblings = [{"rfilename": path} for path in files]
            self._send(200, json.dumps({"id": name, "sha": commit, "siblings": siblings}).encode())

    def _file(self, name: str, revision: str, path: str) -> None:
        if (repo := self._repo(name)) is None or (commit := repo.commit(revision)) is None:
            return
        if repo.gated and not self._knows_token():
            self._send(401, b"", {"X-Error-Code": "GatedRepo"})
            return
        data = repo.files(commit)[path]
        tag = f'"{hashlib.sha1(data).hexdigest()}"'
        if repo.elsewhere:
            other = self.hub.url.replace("127.0.0.1", "localhost")
            there = {"Location": f"{other}/elsewhere/{name}/{commit}/{quote(path)}"}
            linked = {"X-Linked-Size": str(len(data)), "X-Linked-ETag": tag, "X-Repo-Commit": commit}
            self._send(302, b"", there | linked)
        else:
            self._part(repo, data, path, {"ETag": tag, "X-Repo-Commit": commit})

    def _part(self, repo: Repo, data: bytes, path: str, headers: dict[str, str]) -> None:
        """Send the part of the file that is asked for, or all of it."""
        first, _, last = self.headers.get("Range", "bytes=0-")[6:].partition("-")
        part = repo.ranges and (int(first) > 0 or last != "")
        start, end = 0, len(data)
        if part:
            start, end = int(first) + repo.shift, int(last or len(data) - 1) + 1 + repo.shift
            headers["Content-Range"] = f"bytes {start}-{end - 1}/{len(data)}"
        cuts = repo.cut.get(path) if self.command == "GET" else None
        self._send(206 if part else 200, data[start:end], headers, cuts.pop(0) if cuts else None)

    def _send(
        self, status: int, data: bytes, headers: Mapping[str, str] = {}, cut: int | None = None
    ) -> None:
        self.send_response(status)
        for key, value in headers.items():
            self.send_header(key, value)
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(data[:cut])
        if cut is not None:
            self.wfile.flush()
            self.close_connection = True
