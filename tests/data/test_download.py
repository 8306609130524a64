"""Downloads from a server that breaks off, lies, or is not there; all on 127.0.0.1."""

import gc
import hashlib
import os
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest

from glassformer.config import DataConfig
from glassformer.data.download import cache_dir, fetch, find, read_text
from glassformer.errors import DataError

# A connection that broke is closed by requests when it is collected, which Python notes.
pytestmark = pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
CONTENT = bytes(range(256)) * 4000
SHA256 = hashlib.sha256(CONTENT).hexdigest()


class Server(ThreadingHTTPServer):
    """Serves `content`; `cuts` says after how many bytes each answer in turn breaks off; `codes` are sent first."""

    def __init__(self):
        super().__init__(("127.0.0.1", 0), Handler)
        self.content, self.cuts, self.codes, self.n_requests = CONTENT, [], [], 0

    @property
    def url(self):
        return f"http://127.0.0.1:{self.server_address[1]}/data.bin"


class Handler(BaseHTTPRequestHandler):
    server: Server

    def do_GET(self):
        self.server.n_requests += 1
        if self.server.codes:
            self.send_error(self.server.codes.pop(0))
            return
        body = self.server.content
        self.send_response(200)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        cut = self.server.cuts.pop(0) if self.server.cuts else len(body)
        self.wfile.write(body[:cut])

    def log_message(self, *args):
        pass


@pytest.fixture
def server():
    with Server() as running:
        thread = threading.Thread(target=running.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True)
        thread.start()
        yield running
        running.shutdown()


@pytest.fixture(autouse=True)
def folder(tmp_path, monkeypatch):
    """The folder of the data set in a cache of its own; no wait between attempts, and no proxy."""
    monkeypatch.setenv("GLASSFORMER_CACHE", str(tmp_path / "cache"))
    monkeypatch.setenv("NO_PROXY", "127.0.0.1")
    monkeypatch.setattr("pooch.core.time.sleep", lambda seconds: None)
    yield tmp_path / "cache" / "data" / "set"
    gc.collect()


def names(folder):
    return sorted(path.name for path in folder.iterdir()) if folder.exists() else []


def test_a_download_arrives_whole_and_a_second_one_asks_nobody(server, folder):
    path = fetch(server.url, "set", SHA256)
    assert path == folder / "data.bin" and path.read_bytes() == CONTENT
    assert fetch(server.url, "set", SHA256) == path
    assert (names(folder), server.n_requests) == (["data.bin"], 1)


def test_a_broken_connection_and_a_passing_error_are_tried_again(server, folder):
    server.codes, server.cuts = [503, 500], [300_000]
    assert fetch(server.url, "set", SHA256).read_bytes() == CONTENT
    assert (names(folder), server.n_requests) == (["data.bin"], 4)


@pytest.mark.parametrize(
    ("codes", "content", "message"),
    [([404] * 9, CONTENT, "404"), ([], b"an error page", "does not match the known hash")],
    ids=["missing", "other content"],
)
def test_what_is_not_there_leaves_nothing_and_says_what_to_do(server, folder, codes, content, message):
    server.codes, server.content = codes, content
    with pytest.raises(DataError, match=message) as error:
        fetch(server.url, "set", SHA256)
    assert "could not be downloaded" in error.value.message and names(folder) == []
    assert str(folder / "data.bin") in error.value.hint and "--data-dir" in error.value.hint


def test_nobody_there_and_no_folder_are_data_errors(folder):
    with Server() as gone:
        pass
    with pytest.raises(DataError, match="could not be downloaded"):
        fetch(gone.url, "set", SHA256)
    folder.rmdir()
    folder.touch()
    with pytest.raises(DataError, match="could not be downloaded"):
        fetch(gone.url, "set", SHA256)


def test_the_places_are_searched_in_order(tmp_path, monkeypatch):
    monkeypatch.setenv("GLASSFORMER_DATA", str(tmp_path / "shared"))
    assert find(DataConfig(), "set", ["x*", "y"]) == []
    for place in (cache_dir() / "data" / "set", tmp_path / "shared" / "set"):
        place.mkdir(parents=True)
        (place / "x1").write_text("", "utf-8")
        assert find(DataConfig(), "set", ["x*", "y"]) != [place / "x1", place / "y"]
        (place / "y").write_text("", "utf-8")
        assert find(DataConfig(), "set", ["x*", "y"]) == [place / "x1", place / "y"]
    parent, itself = tmp_path / "mine", tmp_path / "mine" / "set"
    itself.mkdir(parents=True)
    with pytest.raises(DataError, match=r"there is no x here"):
        find(DataConfig(data_dir=str(parent)), "set", ["x"])
    (itself / "x").write_text("", "utf-8")
    for place in (parent, itself):
        assert find(DataConfig(data_dir=str(place)), "set", ["x"]) == [itself / "x"]


def test_the_cache_has_a_place_on_every_system(monkeypatch):
    monkeypatch.delenv("GLASSFORMER_CACHE")
    assert cache_dir().name in ("glassformer", "Cache") and os.path.isabs(cache_dir())


def test_a_damaged_file_is_named(tmp_path):
    path = tmp_path / "a.gz"
    for content in (b"\x1f\x8b\x08 no gzip", b"caf\xe9"):
        path.write_bytes(content)
        with pytest.raises(DataError, match=r"a\.gz cannot be read"):
            read_text(path)
    with pytest.raises(DataError, match="none cannot be read"):
        read_text(tmp_path / "none")
