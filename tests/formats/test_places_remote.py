"""Profiles behind URLs: in memory, from a web server, through chains; nothing on the disk, no
secret in a message.
"""

from __future__ import annotations

import gzip
import http.server
import os
import re
import socketserver
import sys
import threading
import time
import traceback
import uuid
from importlib import import_module
from pathlib import Path
from typing import ClassVar
from urllib.parse import unquote

import fsspec
import pytest
from fsspec.asyn import AsyncFileSystem

import nbprof
from nbprof.core.errors import ReadError
from nbprof.sources import locate, remote, urls
from nbprof.sources.locate import OpenOptions
from tests.support.places import gz, space, tarred, trace, write, zipped
from tests.support.xspace import training_run

RUN = "plugins/profile"
FILES = {
    f"{RUN}/a/h0.xplane.pb": space("one/X:X"),
    f"{RUN}/b/h0.xplane.pb": space("two/X:X"),
    f"{RUN}/b/h1.xplane.pb": space("three/X:X"),
    f"{RUN}/b/h0.trace.json.gz": gz(trace(exporter=True)),
    f"{RUN}/b/nbprof.json": b'{"framework": "TensorFlow 9.9"}',
    ".recording-x/h.xplane.pb": space(),
    "readme.txt": b"hello",
}


def names(run):
    return [piece.name for piece in run.files]


@pytest.fixture(autouse=True)
def _nothing_on_the_disk(tmp_path, monkeypatch):
    scratch = tmp_path / "scratch"
    scratch.mkdir()
    monkeypatch.setenv("TMPDIR", str(scratch))
    monkeypatch.setattr("tempfile.tempdir", str(scratch))
    yield
    assert list(scratch.iterdir()) == []


class Handler(http.server.BaseHTTPRequestHandler):
    """A web server with what servers differ in."""

    protocol_version = "HTTP/1.1"

    def do_HEAD(self):
        self.answer(body=False)

    def do_GET(self):
        self.answer(body=True)

    def answer(self, body):
        server = self.server
        path = unquote(self.path.partition("?")[0]).lstrip("/")
        server.asked.append((self.command, path, self.headers.get("Range")))
        if (
            server.password
            and self.headers.get("Authorization") != server.password
            and "sig=right" not in self.path
        ):
            return self.reply(401, b"who are you, hunter2?", {}, body)
        data = server.files.get(path)
        if data is None:
            below = path.rstrip("/") + "/" if path else ""
            here = sorted(
                {
                    n[len(below) :].partition("/")[0] + ("/" if "/" in n[len(below) :] else "")
                    for n in server.files
                    if n.startswith(below)
                }
            )
            if not here or not server.lists:
                return self.reply(404, b"no", {}, body)
            links = "".join(f'<a href="{name}">{name}</a>' for name in ["?C=N;O=D", "../", *here])
            return self.reply(
                200, f"<html>{links}</html>".encode(), {"Content-Type": "text/html"}, body
            )
        headers = {
            "Last-Modified": "Tue, 14 Nov 2023 22:13:20 GMT",
            "ETag": f'"{len(data)}"',
            **server.headers,
        }
        asked = re.match(r"bytes=(\d+)-(\d*)$", self.headers.get("Range", ""))
        if asked and server.ranges:
            start, stop = int(asked[1]), min(int(asked[2] or len(data)) + 1, len(data))
            return self.reply(
                206,
                data[start:stop],
                {**headers, "Content-Range": f"bytes {start}-{stop - 1}/{len(data)}"},
                body,
            )
        if server.breaks and body:
            self.reply(200, data, headers, False)
            self.wfile.write(data[: server.breaks])
            self.wfile.flush()
            self.close_connection = True
            return None
        return self.reply(200, data, headers, body)

    def reply(self, code, data, headers, body):
        self.send_response(code)
        for name, value in headers.items():
            self.send_header(name, value)
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        if body:
            self.wfile.write(data)

    def log_message(self, *_):
        pass


class Server(socketserver.ThreadingMixIn, http.server.HTTPServer):
    daemon_threads = True

    def handle_error(self, *_):
        pass


@pytest.fixture(params=[True, False], ids=["with ranges", "without ranges"])
def web(request):
    """A server of this machine; its `url` gives addresses."""
    server = Server(("127.0.0.1", 0), Handler)
    server.files, server.asked, server.headers = {}, [], {}
    server.ranges, server.lists, server.password, server.breaks = request.param, True, "", 0
    server.url = lambda path="": f"http://127.0.0.1:{server.server_port}/{path}"
    thread = threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True)
    thread.start()
    yield server
    server.shutdown()
    server.server_close()
    fsspec.filesystem("http").clear_instance_cache()


# Any file system of fsspec


def test_a_logdir_behind_a_url(memory, tmp_path):
    url = memory(FILES)
    write(tmp_path / "disk", FILES)
    table = nbprof.runs(url)
    assert table["run"].tolist() == ["b", "a"]
    assert table["hosts"].tolist() == [2, 1]
    assert table["bytes"].tolist() == [
        len(FILES[f"{RUN}/b/h0.xplane.pb"]) + len(FILES[f"{RUN}/b/h1.xplane.pb"]),
        len(space("one/X:X")),
    ]
    for run in ("a", "b"):
        far, near = nbprof.load(url, run=run), nbprof.load(tmp_path / "disk", run=run)
        assert far.hosts == near.hosts
        assert far.ops.frame.equals(near.ops.frame)
        assert far.overview["framework"] == near.overview["framework"]
        assert far.path == f"{url}/{RUN}/{run}"
    for row in table.itertuples():
        assert locate.find(row.path).name == row.run


def test_one_file_behind_a_url(memory):
    url = memory({"x/profile": training_run(3), "x/t.json.gz": gz(trace())})
    assert len(nbprof.load(f"{url}/x/profile").steps.frame) == 3
    run = locate.find(f"{url}/x/t.json.gz")
    assert (run.format, run.name, str(run.folder)) == ("chrome", "t", f"{url}/x")


def test_runs_that_came_since_are_seen(memory):
    url = memory({f"{RUN}/a/h.xplane.pb": space()})
    assert nbprof.runs(url)["run"].tolist() == ["a"]
    memory({f"{RUN}/b/h.xplane.pb": space()})
    assert nbprof.runs(url)["run"].tolist() == ["b", "a"]


@pytest.mark.parametrize(
    "pack", [zipped, tarred, lambda files: tarred(files, "w:gz")], ids=["zip", "tar", "tar.gz"]
)
def test_an_archive_behind_a_url(memory, pack):
    url = memory({"runs.bin": pack(FILES)})
    assert sorted(nbprof.runs(f"{url}/runs.bin")["run"]) == ["a", "b"]
    assert nbprof.load(f"{url}/runs.bin", run="b").hosts == ["h0", "h1"]
    assert names(locate.find(f"{url}/runs.bin!/{RUN}/a")) == ["h0.xplane.pb"]
    scheme = "zip" if pack is zipped else "tar"
    assert names(locate.find(f"{scheme}://{RUN}/a::{url}/runs.bin")) == ["h0.xplane.pb"]


def test_files_from_several_places_are_one_run(memory, tmp_path):
    url = memory({"h0.xplane.pb": space("a/X:X")})
    write(
        tmp_path,
        {"h1.xplane.pb": space("b/X:X"), "z.zip": zipped({"h2.xplane.pb": space("c/X:X")})},
    )
    p = nbprof.load([f"{url}/h0.xplane.pb", tmp_path / "h1.xplane.pb", tmp_path / "z.zip"])
    assert p.hosts == ["h0", "h1", "h2"]
    assert set(p.ops.frame["op"]) == {"a/X", "b/X", "c/X"}


def test_what_is_not_there(memory):
    url = memory({"a/readme.txt": b"x"})
    with pytest.raises(ReadError, match=rf"{url}/nothing: there is no such file or folder"):
        locate.find(f"{url}/nothing")
    with pytest.raises(
        ReadError, match=r"there is no profile in this folder.*It holds readme\.txt"
    ):
        locate.find(f"{url}/a")
    assert nbprof.runs(f"{url}/a").empty


def test_a_file_that_changes_while_it_is_read(memory, monkeypatch):
    url = memory({"h.xplane.pb": training_run(3)})
    parts = remote.RemoteFile._parts

    def meddle(self, size):
        out = parts(self, size)
        memory({"h.xplane.pb": training_run(4)})
        return out

    monkeypatch.setattr(remote.RemoteFile, "_parts", meddle)
    with pytest.raises(ReadError, match=r"h\.xplane\.pb: changed while being read"):
        nbprof.load(f"{url}/h.xplane.pb")


class Faulty(AsyncFileSystem):
    """A store as s3fs and gcsfs are: asynchronous, with requests for parts; it can lose bytes, fail
    and refuse.
    """

    protocol = "faulty"
    cachable = False
    store: ClassVar[dict[str, bytes]] = {}
    requests: ClassVar[list[tuple[int, int]]] = []
    fault = ""

    async def _info(self, path, **_):
        if self.fault == "refuses":
            raise PermissionError(f"Forbidden for key AKIA-{self.storage_options.get('secret')}")
        path = self._strip_protocol(path)
        if path in self.store:
            return {
                "name": path,
                "size": len(self.store[path]),
                "type": "file",
                "ETag": str(hash(self.store[path])),
            }
        if any(name.startswith(path.rstrip("/") + "/") for name in self.store):
            return {"name": path, "size": 0, "type": "directory"}
        raise FileNotFoundError(path)

    async def _find(self, path, **_):
        path = self._strip_protocol(path).rstrip("/") + "/"
        return {
            name: await self._info(name) for name in sorted(self.store) if name.startswith(path)
        }

    def find(self, path, detail=False, **_):
        found = fsspec.asyn.sync(self.loop, self._find, path)
        return found if detail else sorted(found)

    async def _cat_file(self, path, start=None, end=None, **_):
        path = self._strip_protocol(path)
        self.requests.append((start, end))
        if self.fault == "fails" and start:
            raise OSError(
                f"connection reset for https://me:hunter2@store.example/{path}?X-Amz-Signature=topsecret"
            )
        data = self.store[path][start:end]
        return data[:-1] if self.fault == "loses" and start else data


@pytest.fixture
def faulty():
    fsspec.register_implementation("faulty", Faulty, clobber=True)
    Faulty.store, Faulty.requests, Faulty.fault = {}, [], ""
    yield Faulty
    Faulty.store, Faulty.fault = {}, ""


def test_a_large_file_comes_in_parts_at_a_time_and_says_how_far_it_is(faulty, monkeypatch):
    monkeypatch.setattr(remote, "_PART", 1000)
    data = training_run(200)
    faulty.store = {"bucket/h.xplane.pb": data}
    said = []
    run = locate.find("faulty://bucket/h.xplane.pb", options=OpenOptions(progress=said.append))
    faulty.requests.clear()
    assert bytes(run.files[0].read().data) == data
    assert sorted(faulty.requests) == [
        (at, min(at + 1000, len(data))) for at in range(0, len(data), 1000)
    ]
    assert len(said) == -(-len(data) // 8000)
    assert re.fullmatch(r"downloading h\.xplane\.pb: [\d.]+ [KM]?i?B of [\d.]+ [KM]iB", said[-1])
    assert len(nbprof.load("faulty://bucket").steps.frame) == 200


@pytest.mark.parametrize(
    ("fault", "says"),
    [("loses", "only .* bytes arrived"), ("fails", "could not be read.*try again")],
)
def test_a_connection_that_fails_in_between(faulty, monkeypatch, fault, says):
    monkeypatch.setattr(remote, "_PART", 1000)
    faulty.store, faulty.fault = {"bucket/h.xplane.pb": training_run(200)}, fault
    with pytest.raises(ReadError, match=says) as caught:
        nbprof.load("faulty://bucket/h.xplane.pb")
    shown = "".join(traceback.format_exception(caught.value))
    assert "hunter2" not in shown
    assert "topsecret" not in shown


def test_a_store_that_refuses_names_no_secret_and_says_how_to_give_one(faulty):
    faulty.store, faulty.fault = {"bucket/h.xplane.pb": space()}, "refuses"
    secret = uuid.uuid4().hex
    with pytest.raises(ReadError, match=r"faulty://bucket.*storage_options") as caught:
        nbprof.load("faulty://bucket", storage_options={"secret": secret})
    assert secret not in "".join(traceback.format_exception(caught.value))


def test_few_requests_are_made_for_a_large_place(faulty):
    faulty.store = {f"b/{RUN}/r{i}/h{j}.xplane.pb": space() for i in range(30) for j in range(5)}
    faulty.store |= {f"b/data/{i}.json": b"{}" for i in range(500)}
    assert len(nbprof.runs("faulty://b")) == 30
    assert len(faulty.requests) <= 64


class UPath(os.PathLike):
    """As universal_pathlib has it."""

    def __init__(self, fs, path, protocol):
        self.fs, self.path, self.protocol = fs, path, protocol

    def __fspath__(self):
        if self.protocol:
            raise TypeError("a remote path is no path of this machine")
        return self.path

    def __str__(self):
        return f"{self.protocol}://{self.path}"


def test_paths_that_carry_their_file_system(memory, tmp_path):
    url = memory({"h.xplane.pb": space()})
    fs, path = fsspec.core.url_to_fs(url)
    assert names(locate.find(UPath(fs, path, "memory"))) == ["h.xplane.pb"]
    write(tmp_path, {"g.xplane.pb": space()})
    assert (
        locate.find(UPath(fsspec.filesystem("file"), str(tmp_path), "")).files[0].path
        == tmp_path / "g.xplane.pb"
    )
    assert names(locate.find(fsspec.open(f"{url}/h.xplane.pb"))) == ["h.xplane.pb"]


# URLs that lead nowhere


@pytest.mark.parametrize("url", ["s4://bucket/x", "nosuch+thing://x/y", "s4://x::memory://y"])
def test_a_scheme_that_nobody_knows(url):
    with pytest.raises(ReadError, match=r"not a scheme that fsspec knows"):
        locate.find(url)


@pytest.mark.parametrize(
    ("url", "module", "install"),
    [
        ("s3://bucket/logs", "s3fs", "pip install s3fs"),
        ("gs://bucket/logs", "gcsfs", "pip install gcsfs"),
        ("az://b/logs", "adlfs", "pip install adlfs"),
    ],
)
def test_a_backend_that_is_missing_is_named(monkeypatch, url, module, install):
    monkeypatch.setitem(sys.modules, module, None)
    for name in [name for name in sys.modules if name.startswith(module + ".")]:
        monkeypatch.setitem(sys.modules, name, None)
    # An earlier test may have used the backend.
    monkeypatch.delitem(import_module("fsspec.registry")._registry, url[:2], raising=False)
    with pytest.raises(ReadError, match=rf"the backend for {url[:2]}.*{install}"):
        locate.find(url)


@pytest.mark.parametrize(
    ("url", "shown"),
    [
        ("https://user:pw@host/x.json?sig=abc#f", "https://host/x.json"),
        ("s3://key:secret@bucket/x", "s3://bucket/x"),
        ("zip://a.pb::https://u:p@h/z.zip?token=1", "zip://a.pb::https://h/z.zip"),
        ("gs://bucket/a?b/c", "gs://bucket/a?b/c"),
        ("memory://a\nb", "memory://a\ufffdb"),
    ],
)
def test_what_is_shown_of_a_url(url, shown):
    assert urls.public_url(url) == shown


def test_a_message_of_a_backend_is_shown_without_secrets():
    url = "https://user:pw@host/x.json?sig=abcdef"
    said = urls.scrubbed(
        f"404, url={url!r} with key TOPSECRET9 \n  at https://u2:p2@other/z?sig=q",
        url,
        {"client": {"key": "TOPSECRET9"}},
    )
    assert not re.search("pw|abcdef|TOPSECRET9|p2|sig=", said)
    assert "404" in said


# The web


def test_a_file_of_a_web_server(web):
    web.files = {"a b/profile": training_run(30), "t.json": trace()}
    assert len(nbprof.load(web.url("a%20b/profile")).steps.frame) == 30
    run = locate.find(web.url("t.json"))
    assert (run.format, run.name) == ("chrome", "t")
    assert time.gmtime(run.modified)[:3] == (2023, 11, 14)


def test_a_logdir_of_a_web_server(web):
    web.files = FILES
    for url in (web.url(), web.url().rstrip("/")):
        table = nbprof.runs(url)
        assert sorted(table["run"]) == ["a", "b"]
        assert nbprof.load(url, run="b").hosts == ["h0", "h1"]
    assert not any(".recording" in path for _, path, _ in web.asked)


@pytest.mark.parametrize(
    "pack", [zipped, tarred, lambda files: tarred(files, "w:gz")], ids=["zip", "tar", "tar.gz"]
)
def test_an_archive_of_a_web_server(web, pack):
    web.files = {"runs": pack({**FILES, "weights.bin": os.urandom(3_000_000)})}
    assert nbprof.load(web.url("runs"), run="b").hosts == ["h0", "h1"]


@pytest.mark.parametrize("web", [True], ids=["with ranges"], indirect=True)
def test_only_what_is_needed_of_a_zip_is_fetched(web):
    web.files = {
        "runs.zip": zipped(
            {"weights.bin": os.urandom(6_000_000), **FILES, "more.bin": os.urandom(6_000_000)}
        )
    }
    web.asked.clear()
    nbprof.load(web.url("runs.zip"), run="b")
    fetched = [re.match(r"bytes=(\d+)-(\d+)", asked) for _, _, asked in web.asked if asked]
    assert sum(int(m[2]) - int(m[1]) + 1 for m in fetched) < 4_000_000


def test_a_presigned_url(web):
    web.files, web.password = {"x/h.xplane.pb": space()}, "nobody has it"
    url = web.url("x/h.xplane.pb?sig=right")
    p = nbprof.load(url)
    assert (
        "sig" not in f"{p.path} {p.text()} {p.payload()['overview']} {nbprof.runs(url).to_html()}"
    )
    secret = uuid.uuid4().hex
    with pytest.raises(ReadError, match=r"401.*storage_options") as caught:
        nbprof.load(web.url(f"x/h.xplane.pb?sig={secret}"))
    assert secret not in "".join(traceback.format_exception(caught.value))


def test_credentials_in_a_url(web):
    web.files, web.password = {"h.xplane.pb": space()}, "Basic bWU6aHVudGVyMg=="
    url = web.url("h.xplane.pb").replace("http://", "http://me:hunter2@")
    p = nbprof.load(url)
    assert "hunter2" not in f"{p.path} {p.text()} {p.payload()['meta']}"
    secret = uuid.uuid4().hex
    wrong = url.replace("hunter2", secret)
    with pytest.raises(ReadError, match=r"401.*storage_options") as caught:
        nbprof.load(wrong)
    assert secret not in "".join(traceback.format_exception(caught.value))
    with pytest.raises(ReadError, match=r"127\.0\.0\.1"):
        nbprof.load(web.url("h.xplane.pb"))


def test_headers_by_storage_options(web):
    web.files, web.password = {"h.xplane.pb": space()}, "Bearer t0ken"
    options = {"headers": {"Authorization": "Bearer t0ken"}}
    assert nbprof.load(web.url("h.xplane.pb"), storage_options=options).hosts == ["h"]
    assert len(nbprof.runs(web.url("h.xplane.pb"), storage_options=options)) == 1


def test_a_connection_that_breaks(web):
    web.files, web.breaks = {"h.xplane.pb": training_run(500)}, 70_000
    assert len(web.files["h.xplane.pb"]) > 200_000
    with pytest.raises(ReadError, match=r"h\.xplane\.pb: could not be read"):
        nbprof.load(web.url("h.xplane.pb"))


def test_a_server_that_packs_on_the_way(web):
    data = training_run(30)
    web.files, web.headers, web.ranges = (
        {"h.xplane.pb": gzip.compress(data)},
        {"Content-Encoding": "gzip"},
        False,
    )
    assert len(nbprof.load(web.url("h.xplane.pb")).steps.frame) == 30


def test_a_bomb_that_a_server_packs(web):
    web.files, web.headers, web.ranges = (
        {"h.xplane.pb": gzip.compress(training_run(2) + bytes(30_000_000))},
        {"Content-Encoding": "gzip"},
        False,
    )
    with pytest.raises(ReadError, match=r"decompresses to more than"):
        nbprof.load(web.url("h.xplane.pb"), limit_bytes=1_000_000)


def test_a_page_instead_of_a_profile(web):
    web.files, web.lists = {"x.xplane.pb": b"<!DOCTYPE html><title>Sign in</title>"}, False
    with pytest.raises(ReadError, match=r"an HTML page.*login page"):
        nbprof.load(web.url("x.xplane.pb"))
    with pytest.raises(ReadError, match="no such file"):
        nbprof.load(web.url("y.xplane.pb"))


def test_nobody_listens():
    with pytest.raises(
        ReadError, match=r"http://127\.0\.0\.1:9/x\.json: could not be read .*[Cc]onnect"
    ):
        nbprof.load("http://127.0.0.1:9/x.json")


def test_a_local_file_whose_name_looks_like_a_chain(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    Path("run::two.json").write_bytes(trace())
    assert names(locate.find("run::two.json")) == ["run::two.json"]


def test_profiles_at_once_from_several_threads(memory):
    url = memory({f"{i}/h.xplane.pb": space(f"op{i}/X:X") for i in range(6)})
    out = {}
    threads = [
        threading.Thread(
            target=lambda i=i: out.__setitem__(
                i, nbprof.load(f"{url}/{i}").ops.frame["op"].tolist()
            )
        )
        for i in range(6)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert out == {i: [f"op{i}/X"] for i in range(6)}
