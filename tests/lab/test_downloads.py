"""Downloads from a server on this machine."""

import gzip
import hashlib
import re
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import numpy as np
import pytest

from gloam.datasets import from_idx
from gloam_lab.downloads import SOURCES, FetchError, Source, fetch
from tests.datasets.test_readers import encoded


class Server(ThreadingHTTPServer):
    """Sends ``files``; keeps what was asked of it. ``ranges`` and ``most`` make it a poor one."""

    daemon_threads = True

    def __init__(self):
        super().__init__(("127.0.0.1", 0), Handler)
        self.files: dict[str, bytes] = {}
        self.asked: list[tuple[str, str | None]] = []
        self.ranges = True
        self.most = 10**9

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_address[1]}/"


class Handler(BaseHTTPRequestHandler):
    server: Server

    def do_GET(self):
        name, wanted = self.path.strip("/"), self.headers.get("Range")
        self.server.asked.append((name, wanted))
        if name not in self.server.files:
            self.send_error(404)
            return
        content, status = self.server.files[name], 200
        if wanted and self.server.ranges:
            start = int(wanted.removeprefix("bytes=").removesuffix("-"))
            if start >= len(content):
                self.send_error(416)
                return
            content, status = content[start:], 206
        self.send_response(status)
        self.send_header("Content-Length", str(len(content)))
        self.end_headers()
        self.wfile.write(content[: self.server.most])

    def log_message(self, *arguments):
        pass


@pytest.fixture
def server(monkeypatch):
    monkeypatch.setenv("no_proxy", "127.0.0.1")
    with Server() as server:
        server.files = {
            "images.gz": gzip.compress(encoded(np.arange(5 * 40 * 40).reshape(5, 40, 40) % 251)),
            "labels.gz": gzip.compress(encoded(np.arange(5))),
        }
        thread = threading.Thread(target=server.serve_forever, args=(0.01,))
        thread.start()
        yield server
        server.shutdown()
        thread.join()


def source(*mirrors: str, files: dict[str, bytes]) -> dict[str, Source]:
    return {"toy": Source(mirrors, {name: hashlib.md5(files[name]).hexdigest() for name in files})}


@pytest.fixture
def sources(server):
    return source(server.url, files=server.files)


def get(folder, sources) -> dict:
    return fetch("toy", folder, progress=False, sources=sources)


def test_files_are_downloaded_once_and_can_be_read(tmp_path, server, sources):
    paths = get(tmp_path / "toy", sources)
    assert paths == {name: tmp_path / "toy" / name for name in server.files}
    assert {path.name: path.read_bytes() for path in (tmp_path / "toy").iterdir()} == server.files
    assert len(from_idx(paths["images.gz"], paths["labels.gz"])) == 5
    assert get(tmp_path / "toy", sources) == paths
    assert server.asked == [("images.gz", None), ("labels.gz", None)]


def test_by_default_files_go_to_the_users_cache(tmp_path, monkeypatch, sources):
    monkeypatch.setenv("GLOAM_CACHE", str(tmp_path))
    assert get(None, sources)["images.gz"] == tmp_path / "datasets" / "toy" / "images.gz"


def test_a_download_goes_on_where_it_ended(tmp_path, server, sources):
    server.most = 60
    with pytest.raises(FetchError, match=r"'images.gz' cannot be reached\. Tried .*IncompleteRead"):
        get(tmp_path, sources)
    assert (tmp_path / ".images.gz.gloam-part").read_bytes() == server.files["images.gz"][:60]
    assert not (tmp_path / "images.gz").exists()
    server.most = 10**9
    server.asked.clear()
    paths = get(tmp_path, sources)
    assert server.asked == [("images.gz", "bytes=60-"), ("labels.gz", None)]
    assert {name: path.read_bytes() for name, path in paths.items()} == server.files
    assert not (tmp_path / ".images.gz.gloam-part").exists()


def test_a_server_without_ranges_sends_all_of_it(tmp_path, server, sources):
    server.ranges = False
    (tmp_path / ".images.gz.gloam-part").write_bytes(server.files["images.gz"][:100])
    assert get(tmp_path, sources)["images.gz"].read_bytes() == server.files["images.gz"]
    assert server.asked == [("images.gz", "bytes=100-"), ("labels.gz", None)]


def test_a_part_that_is_already_whole_is_taken(tmp_path, server, sources):
    (tmp_path / ".images.gz.gloam-part").write_bytes(server.files["images.gz"])
    assert get(tmp_path, sources)["images.gz"].read_bytes() == server.files["images.gz"]


@pytest.mark.parametrize("part", [b"a wrong beginning", b"far too much " * 10_000])
def test_a_wrong_part_is_thrown_away(tmp_path, server, sources, part):
    (tmp_path / ".images.gz.gloam-part").write_bytes(part)
    assert get(tmp_path, sources)["images.gz"].read_bytes() == server.files["images.gz"]
    assert [wanted for name, wanted in server.asked if name == "images.gz"] == [
        f"bytes={len(part)}-",
        None,
    ]


def test_a_file_of_another_content_is_not_replaced(tmp_path, server, sources):
    for file in (tmp_path / "labels.gz", tmp_path / "images.gz.part"):
        file.write_bytes(b"something of the user's")
    with pytest.raises(FetchError, match=r"labels.gz' to be a file .* move it away"):
        get(tmp_path, sources)
    for file in (tmp_path / "labels.gz", tmp_path / "images.gz.part"):
        assert file.read_bytes() == b"something of the user's"


def test_a_file_with_the_wrong_checksum_is_refused(tmp_path, server, sources):
    server.files["labels.gz"] += b"!"
    with pytest.raises(
        FetchError,
        match=r"^toy: 'labels.gz' has the wrong checksum\. Tried .* "
        r"\(MD5 checksum \w{32} instead of \w{32}\)",
    ):
        get(tmp_path, sources)
    assert [path.name for path in tmp_path.iterdir()] == ["images.gz"]


def test_the_next_mirror_is_tried(tmp_path, server):
    mirrors = (server.url + "none/", server.url)
    paths = get(tmp_path, source(*mirrors, files=server.files))
    assert paths["labels.gz"].read_bytes() == server.files["labels.gz"]
    assert [name for name, _ in server.asked][:2] == ["none/images.gz", "images.gz"]


def test_offline_says_what_to_do(tmp_path, server):
    with Server() as other:
        nowhere = other.url  # closed at once: nobody answers there
    sources = source(nowhere, files=server.files)
    expected = (
        f"^toy: 'images.gz' cannot be reached. Tried {nowhere}images.gz (.+). Try again later, "
        f"which resumes the download, or download the files yourself (images.gz, labels.gz) "
        f"into '{tmp_path}', or call gloam.datasets.from_idx(images, labels).$"
    )
    with pytest.raises(FetchError, match=re.escape(expected).replace(r"\.\+", ".+")[1:-2] + "$"):
        get(tmp_path, sources)
    assert list(tmp_path.iterdir()) == []


def test_a_missing_file_says_so(tmp_path, server, sources):
    del server.files["labels.gz"]
    with pytest.raises(FetchError, match=r"'labels.gz' cannot be reached.*404"):
        get(tmp_path, sources)


def test_unknown_datasets_are_refused(tmp_path):
    message = r"^name: expected one of \['fashion-mnist', 'mnist'\], got 'mnits'\."
    with pytest.raises(ValueError, match=message):
        fetch("mnits", tmp_path)


def test_the_table_names_four_files_with_checksums_for_each():
    assert set(SOURCES) == {"mnist", "fashion-mnist"}
    checksums = [checksum for known in SOURCES.values() for checksum in known.files.values()]
    assert len(set(checksums)) == 8
    assert all(re.fullmatch("[0-9a-f]{32}", checksum) for checksum in checksums)
    for known in SOURCES.values():
        assert all(re.fullmatch(r"https?://.+/", mirror) for mirror in known.mirrors)
        assert len(known.files) == 4


def test_odd_names_and_folders_are_refused(tmp_path):
    for name in ([], {}, None):
        with pytest.raises(ValueError, match=r"^name:"):
            fetch(name, tmp_path)
    for folder in ("", 5, []):
        with pytest.raises(ValueError, match=r"^folder:"):
            fetch("mnist", folder)
