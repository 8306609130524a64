"""A server on this machine that speaks the protocol of the Hugging Face hub, as far as a download needs it."""

from __future__ import annotations

import hashlib
import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urlsplit

COMMIT = "0123456789abcdef0123456789abcdef01234567"


@dataclass
class Hub:
    """What the server answers.

    Attributes:
        name: the model that it has. folder: its files. revisions: branches and tags of its one commit.
        refuse: status and X-Error-Code of every answer. sizes: what is said of files instead of their size.
        damaged: files that are sent with another byte. cut: files whose connection ends in the middle.
        seen: method and path of every request.
    """

    name: str
    folder: Path
    revisions: tuple[str, ...] = ("main", "v1", COMMIT)
    refuse: tuple[int, str] | None = None
    sizes: dict[str, int | None] = field(default_factory=dict)
    damaged: set[str] = field(default_factory=set)
    cut: set[str] = field(default_factory=set)
    seen: list[tuple[str, str]] = field(default_factory=list)
    url: str = ""

    def siblings(self) -> list[dict[str, Any]]:
        """Return the files as the hub lists them: large ones are in LFS, with a SHA-256."""
        found = []
        for path in sorted(path for path in self.folder.rglob("*") if path.is_file()):
            name, data = path.relative_to(self.folder).as_posix(), path.read_bytes()
            size = self.sizes.get(name, len(data))
            one: dict[str, Any] = {"rfilename": name, "size": size}
            one["blobId"] = hashlib.sha1(b"blob %d\0" % len(data) + data).hexdigest()
            if path.suffix in (".safetensors", ".bin"):
                one["lfs"] = {"sha256": hashlib.sha256(data).hexdigest(), "size": size, "pointerSize": 134}
            found.append(one)
        return found


class _Handler(BaseHTTPRequestHandler):
    hub: Hub

    def log_message(self, format: str, *args: Any) -> None:
        pass

    def do_HEAD(self) -> None:
        self.do_GET()

    def do_GET(self) -> None:
        hub, path = self.hub, unquote(urlsplit(self.path).path)
        hub.seen.append((self.command, path))
        if path.startswith("/cdn/"):
            return self.file(path.removeprefix("/cdn/"))
        if hub.refuse is not None:
            status, code = hub.refuse
            return self.answer(status, b"{}", {"X-Error-Code": code, "X-Error-Message": code})
        if path.startswith("/api/models/"):
            name, _, revision = path.removeprefix("/api/models/").partition("/revision/")
            if name != hub.name:
                return self.answer(404, b"{}", {"X-Error-Code": "RepoNotFound"})
            if revision and revision not in hub.revisions:
                return self.answer(404, b"{}", {"X-Error-Code": "RevisionNotFound"})
            facts = {
                "id": name,
                "modelId": name,
                "sha": COMMIT,
                "siblings": hub.siblings(),
                "tags": [],
                "private": False,
            }
            return self.answer(200, json.dumps(facts).encode(), {"Content-Type": "application/json"})
        start = f"/{hub.name}/resolve/{COMMIT}/"
        if not path.startswith(start):
            return self.answer(404, b"", {"X-Error-Code": "EntryNotFound"})
        name = path.removeprefix(start)
        known = next(one for one in hub.siblings() if one["rfilename"] == name)
        if "lfs" not in known:
            return self.file(name, {"ETag": f'"{known["blobId"]}"', "X-Repo-Commit": COMMIT})
        storage = hub.url.replace("127.0.0.1", "localhost")  # another host, as that of the hub's storage
        moved = {"Location": f"{storage}/cdn/{name}", "X-Linked-Etag": f'"{known["lfs"]["sha256"]}"'}
        return self.answer(302, b"", moved | {"X-Linked-Size": str(known["size"]), "X-Repo-Commit": COMMIT})

    def file(self, name: str, headers: dict[str, str] | None = None) -> None:
        """Send a file."""
        data = (self.hub.folder / name).read_bytes()
        if name in self.hub.damaged:
            data = data[:-1] + bytes([data[-1] ^ 1])
        self.answer(200, data, headers or {}, len(data) // 2 if name in self.hub.cut else None)

    def answer(self, status: int, data: bytes, headers: dict[str, str], sent: int | None = None) -> None:
        """Send an answer; of a connection that ends too early `sent` bytes."""
        self.send_response(status)
        for name, value in ({"Content-Length": str(len(data))} | headers).items():
            self.send_header(name, value)
        self.end_headers()
        if self.command == "GET":
            self.wfile.write(data[:sent])


@contextmanager
def served(hub: Hub) -> Iterator[Hub]:
    """Serve a hub while the block runs."""
    handler = type("Handler", (_Handler,), {"hub": hub})
    with ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        hub.url = f"http://127.0.0.1:{server.server_address[1]}"
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True)
        thread.start()
        try:
            yield hub
        finally:
            server.shutdown()
            thread.join()
