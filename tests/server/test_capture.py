"""Recording workers from JupyterLab: the real server and its process, against servers that behave
as they are told.
"""

from __future__ import annotations

import asyncio
import json
from pathlib import Path

import pytest

import nbprof
from nbprof.capture.remote import failures
from nbprof.capture.remote.addresses import parse
from nbprof.capture.remote.client import Refusal
from nbprof.capture.remote.sampling import Sampling
from nbprof.core.errors import CaptureError
from nbprof.server.capture import MOST_WORKERS
from nbprof.server.recorder import Recorder
from nbprof.server.recordings import MOST_RECORDINGS
from nbprof.sources.recording import CaptureInfo
from tests.server.conftest import until
from tests.support.profiler_server import Refuse, answer, standing_in
from tests.support.profiles import require

NOBODY = "localhost:1"
QUICK = {"duration_ms": 20, "retries": 0}


@pytest.fixture(autouse=True)
def library():
    require("grpc")


class Answer:
    """The lines of one answer."""

    def __init__(self, status, body):
        self.status = status
        lines = [json.loads(line) for line in body.decode().splitlines()]
        self.last = lines[-1] if lines else {}
        self.progress = [line["progress"] for line in lines if "progress" in line]
        self.workers = [
            (row["address"], row["state"], row["text"])
            for line in lines
            if (row := line.get("worker"))
        ]
        self.message, self.field, self.path = (
            self.last.get(key) for key in ("message", "field", "path")
        )

    def states(self, address):
        return [state for one, state, _ in self.workers if one == address]


@pytest.fixture
def capture(post):
    async def capture(addresses, **options):
        return Answer(
            *await post("capture", {"addresses": addresses, **QUICK, **options}, request_timeout=60)
        )

    return capture


@pytest.fixture
def streamed(http_server_client, jp_base_url, jp_auth_header):
    """Posts, and gives (task of the whole answer, its lines as they come, a function that waits for
    a line).
    """

    def streamed(request, **options):
        lines, news, held = [], asyncio.Event(), bytearray()

        def more(chunk):
            held.extend(chunk)
            *whole, rest = bytes(held).split(b"\n")
            held[:] = rest
            lines.extend(json.loads(line) for line in whole)
            news.set()

        async def line(fits):
            while not (found := [one for one in lines if fits(one)]):
                news.clear()
                await asyncio.wait_for(news.wait(), 30)
            return found[0]

        work = asyncio.ensure_future(
            http_server_client.fetch(
                f"{jp_base_url}nbprof/api/capture", method="POST", body=json.dumps(request), headers=jp_auth_header,
                streaming_callback=more, raise_error=False, **{"request_timeout": 60, **options},
            )
        )  # fmt: skip
        return work, lines, line

    return streamed


@pytest.fixture
def page(jp_base_url, jp_auth_header, jp_http_port):
    """Posts as a page does that can be closed: gives its connection."""

    async def page(request):
        body = json.dumps(request).encode()
        _, writer = await asyncio.open_connection("127.0.0.1", jp_http_port)
        headers = {
            **jp_auth_header,
            "Host": f"localhost:{jp_http_port}",
            "Content-Length": len(body),
        }
        lines = [
            f"POST {jp_base_url}nbprof/api/capture HTTP/1.1",
            *(f"{key}: {value}" for key, value in headers.items()),
        ]
        writer.write("\r\n".join([*lines, "", ""]).encode() + body)
        await writer.drain()
        return writer

    return page


async def test_two_workers_are_recorded_into_the_folder_and_open(
    capture, open_profile, jp_root_dir, extension
):
    with standing_in(answer("trainer-0")) as a, standing_in(answer("trainer-1")) as b:
        said = await capture(
            f"grpc://{a.address}, {b.address}",
            host_level=3,
            device_level=0,
            python_level=1,
            folder="mine/logs",
        )
        request = a.requests[0]
        assert len(b.requests) == 1
    assert said.status == 200
    assert (request[1], {no: request[4].get(no, 0) for no in (2, 3, 4)}) == (20, {2: 3, 3: 0, 4: 1})
    assert said.path == f"mine/logs/plugins/profile/{said.last['name']}"
    assert [row["state"] for row in said.last["workers"]] == ["recorded", "recorded"]
    assert said.states(a.address)[0] == "asked"
    assert said.states(a.address)[-1] == "recorded"
    assert any(
        f"ecording {word}" in text
        for text in said.progress
        for word in ("2 workers", "of 2 workers")
    ), said.progress
    folder = jp_root_dir / said.path
    assert sorted(file.name for file in folder.iterdir()) == sorted(
        [f"localhost_{a.port}.xplane.pb", f"localhost_{b.port}.xplane.pb", "nbprof.json"]
    )
    assert sorted(nbprof.load(folder).hosts) == ["trainer-0", "trainer-1"]
    assert not list((jp_root_dir / "mine" / "logs").glob(".*"))
    status, reply = await open_profile(said.path)
    assert status == 200, reply.message
    await until(lambda: not extension.recordings.processes)


async def test_one_answers_one_refuses_and_nobody_is_at_the_third(capture, jp_root_dir):
    with standing_in(answer("a")) as a, standing_in(Refuse("UNIMPLEMENTED", "no")) as b:
        said = await capture([a.address, b.address, NOBODY, a.address])
    rows = {row["address"]: row for row in said.last["workers"]}
    assert [rows[one]["state"] for one in (a.address, b.address, NOBODY)] == [
        "recorded",
        "failed",
        "failed",
    ]
    assert failures.NO_PROFILER in rows[b.address]["text"]
    assert failures.REFUSED in rows[NOBODY]["text"]
    assert said.states(NOBODY)[-1] == "failed"
    assert f"{a.address} was given more than once and recorded once" in said.last["notes"]
    capture_info = CaptureInfo.read(jp_root_dir / said.path)
    assert len(capture_info.warnings) == 2


async def test_a_worker_that_is_idle_is_asked_again_and_that_is_told(capture):
    with standing_in(answer(empty=True), answer("late")) as server:
        said = await capture(server.address, retries=1)
    assert said.states(server.address)[-2:] == ["again", "recorded"]
    text = next(text for _, state, text in said.workers if state == "again")
    assert text.endswith("Try a longer duration (attempt 2 of 2)")
    assert any("was recorded on attempt 2" in note for note in said.last["notes"])


async def test_where_nothing_comes_there_is_a_sentence_and_no_folder(
    capture, jp_root_dir, extension
):
    said = await capture(NOBODY, folder="new")
    assert said.status == 200
    assert said.message.startswith(f"{NOBODY}: nothing listens on this port")
    assert said.states(NOBODY)[-1] == "failed"
    assert not (jp_root_dir / "new").exists()
    (jp_root_dir / "new").mkdir()
    await capture(NOBODY, folder="new")
    assert list((jp_root_dir / "new").iterdir()) == []
    await until(lambda: not extension.recordings.processes)


async def test_a_killed_worker_is_missing_and_the_other_is_kept(capture):
    with standing_in(answer("a")) as a, standing_in(Refuse("UNAVAILABLE", "Socket closed")) as b:
        said = await capture(f"{a.address},{b.address}")
    assert [row["state"] for row in said.last["workers"]] == ["recorded", "failed"]
    assert failures.BROKEN in said.last["workers"][1]["text"]


async def test_the_folder_is_by_default_the_one_of_cells_and_not_for_git(capture, jp_root_dir):
    with standing_in() as server:
        first = await capture(server.address)
        second = await capture(server.address, folder="/")
    assert first.path.startswith("nbprof-results/plugins/profile/")
    assert (jp_root_dir / "nbprof-results" / ".gitignore").read_text() == "*\n"
    assert second.path.startswith("plugins/profile/")
    assert (jp_root_dir / second.path).is_dir()
    assert not (jp_root_dir / ".gitignore").exists()


async def test_a_name_that_is_taken_gets_a_number(capture, jp_root_dir):
    with standing_in() as server:
        first = await capture(server.address, name="Größe 2 (b)", folder="logs")
        second = await capture(server.address, name="Größe 2 (b)", folder="logs")
    assert first.path == "logs/plugins/profile/Größe 2 (b)"
    assert second.path == "logs/plugins/profile/Größe 2 (b)_2"
    assert (
        "there is already a run named Größe 2 (b), so this one is Größe 2 (b)_2"
        in second.last["notes"]
    )
    assert CaptureInfo.read(jp_root_dir / first.path).label == "Größe 2 (b)"


@pytest.mark.parametrize("leaves", ["the page is closed", "the server ends"])
async def test_a_recording_that_nobody_waits_for_releases_its_workers_and_keeps_nothing(
    page, streamed, jp_root_dir, extension, leaves
):
    def slow(request, server):
        server.end.wait(30)
        return answer("late")

    with standing_in(slow) as server:
        request = {"addresses": server.address, "duration_ms": 60_000, "folder": "logs"}
        if leaves == "the page is closed":
            writer = await page(request)
        else:
            work, lines, _ = streamed(request)
        await until(lambda: server.requests)
        (process,) = extension.recordings.processes
        assert list((jp_root_dir / "logs").glob(".recording-*"))
        if leaves == "the page is closed":
            writer.close()
        else:
            await extension.recordings.close()
        await until(server.left.is_set)
        await until(lambda: not extension.recordings.processes)
        await until(lambda: process.ended.is_set())
        server.end.set()
        if leaves == "the server ends":
            await work
            assert lines[-1] == {"message": "the recording was cancelled; nothing was saved."}
    assert not (jp_root_dir / "logs").exists()


async def test_a_server_that_is_killed_leaves_nothing_behind(streamed, jp_root_dir, extension):
    def slow(request, server):
        server.end.wait(30)
        return answer("late")

    with standing_in(slow) as server:
        work, _, _ = streamed(
            {"addresses": server.address, "duration_ms": 60_000, "folder": "logs"}
        )
        await until(lambda: server.requests)
        (process,) = extension.recordings.processes
        # What happens to its standard input then.
        process._in.close()
        await until(lambda: not (jp_root_dir / "logs").exists())
        await until(lambda: process.ended.is_set())
        server.end.set()
        await work


async def test_it_can_be_stopped_early_and_what_was_recorded_is_kept(streamed, post, jp_root_dir):
    def waits(request, server):
        server.end.wait(30)
        return answer("stopped")

    with standing_in(waits) as server:
        work, lines, line = streamed({"addresses": server.address, "duration_ms": 600_000})
        key = (await line(lambda one: "recording" in one))["recording"]
        await until(lambda: server.requests)
        await line(lambda one: one.get("worker", {}).get("state") == "recording")
        assert (await post("capture", {"stop": "another"}))[0] == 404
        assert (await post("capture", {"stop": key}))[0] == 200
        await work
    assert lines[-1]["workers"][0]["state"] == "recorded", lines
    assert any(
        note.startswith("the recording was stopped early, after") for note in lines[-1]["notes"]
    )
    assert nbprof.load(jp_root_dir / lines[-1]["path"]).hosts == ["stopped"]
    status, body = await post("capture", {"stop": key})
    assert (status, json.loads(body)["message"]) == (404, "this recording has already ended.")


async def test_it_can_be_stopped_before_anything_was_recorded(streamed, post):
    work, lines, line = streamed({"addresses": NOBODY, "duration_ms": 20, "retries": 100})
    key = (await line(lambda one: "recording" in one))["recording"]
    await line(lambda one: one.get("worker", {}).get("state") == "again")
    assert (await post("capture", {"stop": key}))[0] == 200
    await work
    assert lines[-1] == {"message": "the recording was stopped before anything was recorded."}


async def test_only_so_many_at_a_time(streamed, capture, extension):
    def slow(request, server):
        server.end.wait(30)
        return answer("late")

    with standing_in(*[slow] * 9) as server:
        for_all = [
            streamed({"addresses": server.address, "duration_ms": 20, "folder": f"logs{i}"})
            for i in range(MOST_RECORDINGS)
        ]
        for _, _, line in for_all:
            await line(lambda one: "recording" in one)
        said = await capture(NOBODY)
        assert said.status == 503
        assert said.message.startswith(f"{MOST_RECORDINGS} recordings are running")
        server.end.set()
        await asyncio.gather(*[work for work, _, _ in for_all])
    assert all("path" in lines[-1] for _, lines, _ in for_all)


async def test_what_is_sent_may_not_use_more_memory_than_the_server_allows(
    streamed, extension, jp_root_dir
):
    extension.recordings._memory = 1 << 20
    with standing_in(lambda request, server: server.end.wait(60) and answer("late")) as server:
        work, lines, _ = streamed({"addresses": server.address, "duration_ms": 60_000})
        await work
    assert "raise c.NbprofServer.memory" in lines[-1]["message"]


WRONG = [
    ({"addresses": ""}, "addresses"),
    ({}, "addresses"),
    ({"addresses": 5}, "addresses"),
    ({"addresses": [5]}, "addresses"),
    ({"addresses": "http://a:1"}, "addresses"),
    ({"addresses": "a:1;rm"}, "addresses"),
    ({"addresses": [f"a:{port}" for port in range(1, MOST_WORKERS + 2)]}, "addresses"),
    ({"duration_ms": 0}, "duration_ms"),
    ({"duration_ms": 3_600_001}, "duration_ms"),
    ({"duration_ms": 1.5}, "duration_ms"),
    ({"duration_ms": True}, "duration_ms"),
    ({"host_level": 4}, "host_level"),
    ({"device_level": 2}, "device_level"),
    ({"python_level": -1}, "python_level"),
    ({"delay_ms": -1}, "delay_ms"),
    ({"delay_ms": "5"}, "delay_ms"),
    ({"retries": 101}, "retries"),
    ({"retries": "3"}, "retries"),
    ({"name": "../x"}, "name"),
    ({"name": ".hidden"}, "name"),
    ({"name": "a" * 61}, "name"),
    ({"name": "a/b"}, "name"),
    ({"name": "a\n"}, "name"),
    ({"name": 7}, "name"),
    ({"folder": "../outside"}, "folder"),
    ({"folder": "a/../../outside"}, "folder"),
    ({"folder": ".hidden/x"}, "folder"),
    ({"folder": "a\0b"}, "folder"),
    ({"folder": "\ud800"}, "folder"),
    ({"folder": "a" * 5000}, "folder"),
    ({"folder": "file.txt"}, "folder"),
    ({"folder": "file.txt/x"}, "folder"),
    ({"folder": ["a"]}, "folder"),
    ({"folder": "out"}, "folder"),
    ({"folder": "out/deeper"}, "folder"),
    ({"folder": "inner"}, "folder"),
]


async def test_what_cannot_be_is_refused_at_once_beside_its_field(
    post, jp_root_dir, tmp_path, extension
):
    (tmp_path / "elsewhere").mkdir()
    (jp_root_dir / "file.txt").write_text("")
    (jp_root_dir / "out").symlink_to(tmp_path / "elsewhere")
    (jp_root_dir / "inner").mkdir()
    (jp_root_dir / "inner" / "plugins").symlink_to(tmp_path / "elsewhere")
    for request, field in WRONG:
        status, body = await post(
            "capture", {**({"addresses": NOBODY} if field != "addresses" else {}), **request}
        )
        said = json.loads(body)
        assert (status, said["field"]) == (400, field), request
        assert said["message"]
        assert str(jp_root_dir) not in said["message"]
    assert not extension.recordings.processes
    assert list((tmp_path / "elsewhere").iterdir()) == []


async def test_the_sentences_are_those_of_python(post):
    for field, value in {
        "duration_ms": 0,
        "delay_ms": 3_600_001,
        "host_level": 9,
        "retries": 1000,
        "name": "/",
        "addresses": "a",
    }.items():
        _, body = await post("capture", {"addresses": NOBODY, field: value})
        with pytest.raises(CaptureError) as error:
            parse(value) if field == "addresses" else Sampling(**{field: value})
        assert json.loads(body)["message"] == str(error.value)


def test_the_fields_are_checked_as_the_form_checks_them():
    """js/tests/lab-capture.test.ts holds the form to the same file."""
    cases = json.loads((Path(__file__).parents[1] / "data" / "capture-fields.json").read_text())
    for field, rows in cases.items():
        for text, expected in rows.items():
            value = text if field in ("addresses", "name") else int(text)
            try:
                found = (
                    [str(one) for one in parse(value)[0]]
                    if field == "addresses"
                    else getattr(Sampling(**{field: value}), field)
                )
            except CaptureError:
                found = None
            assert found == expected, (field, text)


async def test_a_folder_that_cannot_be_written_says_so(capture, jp_root_dir, extension):
    # Where root cannot write either.
    extension.follow_links = True
    (jp_root_dir / "locked").symlink_to("/proc/self")
    said = await capture(NOBODY, folder="locked/logs")
    assert said.message.startswith("locked/logs cannot be written")
    assert "Choose a folder that you can write to" in said.message


def test_every_sentence_speaks_of_the_dialog_and_not_of_a_cell(tmp_path):
    recorder = Recorder(None, 0)
    recorder._folder_names = (str(tmp_path / "my logs"), "work/my logs")
    address = parse("a:1")[0][0]
    scratch = str(tmp_path / "my logs" / ".recording-abc" / "plugins" / "profile")
    said = [
        *(
            text
            for name, text in vars(failures).items()
            if name.isupper() and isinstance(text, str)
        ),
        failures.shared(),
        failures.explain(
            Refusal("X", f"cannot open {scratch}/x: no"), address, scratch, 1.0
        ).reason,
        failures.explain(Refusal("RESOURCE_EXHAUSTED", "large"), address, "", 1.0).reason,
        f"its 3.00 MiB could not be written to {scratch}/run (No space left on device): choose another location with --logdir DIR",
        f"{tmp_path / 'my logs'} cannot be written (Permission denied); nothing was recorded. Choose a --logdir that you can write to",
    ]
    for text in map(recorder._in_dialog, said):
        assert "--" not in text
        assert str(tmp_path) not in text
    assert recorder._in_dialog(said[-1]).startswith(
        "work/my logs cannot be written (Permission denied)"
    )
    assert recorder._in_dialog(said[-2]).endswith(
        "could not be written to work/my logs (No space left on device): choose another folder"
    )


class TestTurnedOff:
    @pytest.fixture
    def options(self):
        return {"capture": False}

    async def test_nobody_is_asked_and_jupyterlab_knows(self, post, jp_serverapp, extension):
        with standing_in() as server:
            status, body = await post("capture", {"addresses": server.address, **QUICK})
            assert status == 403
            assert "c.NbprofServer.capture" in json.loads(body)["message"]
            assert (await post("capture", {"stop": "x"}))[0] == 403
            assert not server.requests
        assert not extension.recordings.processes
        assert jp_serverapp.web_app.settings["page_config_data"]["nbprofCapture"] is False


class TestNotAllowed:
    @pytest.fixture(params=["read only", "no code", "no writing"])
    def jp_server_config(self, request):
        from jupyter_server.auth import Authorizer

        denied = {
            "read only": lambda action, resource: action != "read",
            "no code": lambda action, resource: (action, resource) == ("execute", "kernels"),
            "no writing": lambda action, resource: (action, resource) == ("write", "contents"),
        }[request.param]

        class Some(Authorizer):
            def is_authorized(self, handler, user, action, resource):
                return not denied(action, resource)

        return {"ServerApp": {"jpserver_extensions": {"nbprof": True}, "authorizer_class": Some}}

    async def test_who_may_not_run_code_or_write_may_not_record(self, post, extension):
        with standing_in() as server:
            assert (await post("capture", {"addresses": server.address, **QUICK}))[0] == 403
            assert (await post("capture", {"stop": "x"}))[0] == 403
            assert not server.requests
        assert not extension.recordings.processes


async def test_nothing_is_recorded_without_the_token(http_server_client, jp_base_url, extension):
    for headers in ({}, {"Authorization": "token wrong"}):
        reply = await http_server_client.fetch(
            f"{jp_base_url}nbprof/api/capture",
            method="POST",
            headers=headers,
            raise_error=False,
            body=json.dumps({"addresses": NOBODY}),
        )
        assert reply.code == 403
    assert not extension.recordings.processes


async def test_a_request_that_is_none_is_refused(post):
    for body in (b"", b"{", b"[]", b"\xff", b"1", b"[" * 100_000):
        status, said = await post("capture", body)
        assert status == 400
        assert json.loads(said)["message"].endswith(".")
