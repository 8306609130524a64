"""Downloads from a server that breaks off, lies, or is not there; all on 127.0.0.1."""

from __future__ import annotations

import hashlib
import os
import threading
from functools import partial
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest

from glassformer.config import DataConfig
from glassformer.data.download import Remote, cache_dir, fetch, find
from glassformer.errors import DataError, ResourceError

CONTENT = bytes(range(256)) * 4000


class Server(ThreadingHTTPServer):
    """Serves `content`; `cuts` says after how many bytes each answer in turn breaks off; `codes` are sent first."""

    def __init__(self):
        super().__init__(("127.0.0.1", 0), Handler)
        self.content, self.cuts, self.codes, self.ranges, self.with_ranges = CONTENT, [], [], [], True

    @property
    def url(self):
        return f"http://127.0.0.1:{self.server_address[1]}/data.bin"


class Handler(BaseHTTPRequestHandler):
    server: Server

    def do_GET(self):
        wanted = self.headers.get("Range")
        self.server.ranges.append(wanted)
        if self.server.codes:
            self.send_error(self.server.codes.pop(0))
            return
        start = int(wanted.removeprefix("bytes=").rstrip("-")) if wanted and self.server.with_ranges else 0
        if start >= len(self.server.content):
            self.send_error(416)
            return
        body = self.server.content[start:]
        self.send_response(206 if start else 200)
        if start:
            self.send_header("Content-Range", f"bytes {start}-{start + len(body) - 1}/{len(self.server.content)}")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        cut = self.server.cuts.pop(0) if self.server.cuts else len(body)
        self.wfile.write(body[:cut])
        if cut < len(body):
            self.close_connection = True

    def log_message(self, *args):
        pass


@pytest.fixture
def server():
    with Server() as running:
        thread = threading.Thread(target=running.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True)
        thread.start()
        yield running
        running.shutdown()


def check(path, content=CONTENT):
    if hashlib.sha256(path.read_bytes()).digest() != hashlib.sha256(content).digest():
        raise DataError("not what it should be")


def get(server, folder, max_bytes=1 << 24, waits=(0.0, 0.0, 0.0)):
    return fetch(Remote(server.url, "data.bin", max_bytes, check), folder, waits=waits)


def names(folder):
    return sorted(path.name for path in folder.iterdir())


def test_a_download_arrives_whole_and_a_second_one_asks_nobody(server, tmp_path):
    path = get(server, tmp_path / "new" / "folder")
    assert path.read_bytes() == CONTENT
    assert get(server, path.parent) == path
    assert (names(path.parent), server.ranges) == (["data.bin"], [None])


def test_a_broken_connection_is_continued_where_it_broke(server, tmp_path):
    server.cuts = [300_000, 200_000]
    assert get(server, tmp_path).read_bytes() == CONTENT
    assert server.ranges[0] is None
    assert [int(r.removeprefix("bytes=").rstrip("-")) for r in server.ranges[1:]] == [300_000, 500_000]


def test_another_run_continues_the_part_of_an_earlier_one(server, tmp_path):
    (tmp_path / "data.bin.part").write_bytes(CONTENT[:1000])
    assert get(server, tmp_path).read_bytes() == CONTENT
    assert server.ranges == ["bytes=1000-"]


def test_a_server_without_ranges_sends_it_all_again(server, tmp_path):
    server.with_ranges = False
    (tmp_path / "data.bin.part").write_bytes(b"old")
    assert get(server, tmp_path).read_bytes() == CONTENT


@pytest.mark.parametrize("part", [b"x" * 1000, CONTENT + b"too long", CONTENT])
def test_a_part_of_something_else_or_too_long_or_complete_is_overcome(server, tmp_path, part):
    (tmp_path / "data.bin.part").write_bytes(part)
    assert get(server, tmp_path).read_bytes() == CONTENT
    assert names(tmp_path) == ["data.bin"]


@pytest.mark.parametrize("code", [500, 503, 429, 408])
def test_a_passing_error_is_tried_again(server, tmp_path, code):
    server.codes = [code, code]
    assert get(server, tmp_path).read_bytes() == CONTENT


def test_a_missing_file_is_an_error_at_once_that_says_what_to_do(server, tmp_path):
    server.codes = [404] * 9
    with pytest.raises(DataError, match="could not be downloaded: Not Found") as error:
        get(server, tmp_path)
    assert len(server.ranges) == 1
    assert str(tmp_path / "data.bin") in error.value.hint and "--data-dir" in error.value.hint


def test_a_connection_that_keeps_breaking_is_given_up_and_its_part_kept(server, tmp_path):
    server.cuts = [10] * 9
    with pytest.raises(DataError, match="keeps breaking off"):
        get(server, tmp_path)
    assert (tmp_path / "data.bin.part").read_bytes() == CONTENT[:40]


def test_nobody_there_is_a_data_error(tmp_path):
    with Server() as gone:
        pass
    with pytest.raises(DataError, match="could not be downloaded") as error:
        get(gone, tmp_path)
    assert "fetch it yourself" in error.value.hint
    assert names(tmp_path) == []


def test_wrong_content_is_refused_and_leaves_nothing_to_continue(server, tmp_path):
    server.content = b"an error page"
    with pytest.raises(DataError, match="not what it should be"):
        get(server, tmp_path)
    assert names(tmp_path) == []


def test_more_than_the_cap_is_refused(server, tmp_path):
    with pytest.raises(DataError, match="at most 1,000 bytes, got more"):
        get(server, tmp_path, max_bytes=1000)
    assert names(tmp_path) == []


def test_a_folder_that_cannot_be_made_is_a_resource_error(server, tmp_path):
    (tmp_path / "file").write_text("", encoding="utf-8")
    with pytest.raises(ResourceError, match="cannot write here"):
        get(server, tmp_path / "file")


def test_the_places_are_searched_in_order(tmp_path, monkeypatch):
    monkeypatch.setenv("GLASSFORMER_DATA", str(tmp_path / "shared"))
    monkeypatch.setenv("GLASSFORMER_CACHE", str(tmp_path / "cache"))
    assert cache_dir() == tmp_path / "cache"

    def probe(place):
        return place / "x" if (place / "x").is_file() else None

    look = partial(find, name="set", probe=probe, wanted="set (x)")
    assert look(DataConfig()) is None
    for place in (tmp_path / "cache" / "data" / "set", tmp_path / "shared" / "set"):
        place.mkdir(parents=True)
        (place / "x").write_text("", encoding="utf-8")
        assert look(DataConfig()) == place / "x"
    parent, itself = tmp_path / "mine", tmp_path / "mine" / "set"
    itself.mkdir(parents=True)
    with pytest.raises(DataError, match=r"no set \(x\) here"):
        look(DataConfig(data_dir=str(parent)))
    (itself / "x").write_text("", encoding="utf-8")
    assert look(DataConfig(data_dir=str(parent))) == look(DataConfig(data_dir=str(itself))) == itself / "x"


def test_the_cache_has_a_place_on_every_platform(monkeypatch, tmp_path):
    monkeypatch.delenv("GLASSFORMER_CACHE", raising=False)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.setenv("LOCALAPPDATA", str(tmp_path))
    for platform in ("linux", "win32", "darwin"):
        monkeypatch.setattr("sys.platform", platform)
        assert cache_dir().name == "glassformer"
    assert os.path.isabs(cache_dir())
