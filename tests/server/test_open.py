"""The extension on a real server: what it opens and answers, and what it refuses, attack by
attack.
"""

from __future__ import annotations

import asyncio
import gzip
import json
import os
import shutil

import numpy as np
import pytest

from nbprof.display import codec
from nbprof.server import handlers
from nbprof.server.handlers import MOST_BYTES, OpenHandler
from nbprof.server.process import Progress
from nbprof.server.worker import Desk
from nbprof.tools import dashboard
from tests.support import msprof
from tests.support.kineto import Kineto
from tests.support.xspace import training_run


async def test_it_gives_the_payload_that_python_gives(profile, open_profile):
    from nbprof.profiles.load import load

    status, reply = await open_profile("logs/host-a.xplane.pb")
    assert status == 200, reply.message
    here = load(profile).payload()
    assert reply.payload["overview"]["verdict"] == here["overview"]["verdict"]
    np.testing.assert_array_equal(
        reply.payload["steps"]["step_time_ms"], here["steps"]["step_time_ms"]
    )


async def test_a_large_profile_shows_its_first_picture_while_the_rest_is_made(
    profile, jp_root_dir, extension, open_profile
):
    """By a server whose process takes its time: how long an analysis takes is no matter of this
    test.
    """
    packed = {name: codec.pack({"meta": {"label": name}}) for name in ("first", "whole")}
    seen = asyncio.Event()

    async def opens(_place, tell):
        tell(Progress("Analysing it", None, packed["first"]))
        await asyncio.wait_for(seen.wait(), 30)
        return packed["whole"]

    write, lines = OpenHandler._line, []

    async def notes(self, data):
        await write(self, data)
        lines.append(data)
        # The connection is kept alive by lines that say the same again.
        if len(lines) == 4:
            seen.set()

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(extension.pool, "open", opens)
        patch.setattr(OpenHandler, "_line", notes)
        patch.setattr(handlers, "_BEAT_S", 0.05)
        status, reply = await open_profile("logs/host-a.xplane.pb")
    assert status == 200, reply.message
    assert [one["meta"]["label"] for one in reply.pictures] == ["first"]
    assert reply.progress == ["Analysing it"] * 4
    assert reply.payload["meta"]["label"] == "whole"


@pytest.mark.parametrize(("many", "pictures"), [(1, 1), (10**9, 0)])
def test_a_process_shows_the_first_picture_of_what_is_large(tmp_path, monkeypatch, many, pictures):
    path = tmp_path / "host.xplane.pb"
    path.write_bytes(training_run(6))
    monkeypatch.setattr(dashboard, "MANY_EVENTS", many)
    sent = []
    desk = Desk(lambda head, body: sent.append((head["is"], body)))
    desk.handle({"id": 1, "do": "open", "path": str(path), "shown": path.name, "root": None}, b"")
    *told, (last, whole) = sent
    assert last == "done"
    shown = [codec.unpack(body) for _, body in told if body]
    assert [(one["meta"]["pending"], len(one["meta"]["tabs"])) for one in shown] == [
        ("analysing…", 1)
    ] * pictures
    for one in shown:
        assert one["overview"]["verdict"] == codec.unpack(whole)["overview"]["verdict"]


async def test_the_trace_is_answered_with_all_its_events(profile, open_profile, post):
    from nbprof.profiles.load import load

    _, reply = await open_profile("logs/host-a.xplane.pb")
    question = {"path": "logs/host-a.xplane.pb", "version": reply.version}
    status, body = await post("ask", {**question, "request": {"ask": "hello"}})
    assert (status, codec.unpack(body)) == (200, {"ok": True})
    status, body = await post("ask", {**question, "request": {"ask": "open"}})
    assert status == 200, body
    answer = codec.unpack(body)
    assert answer["ok"]
    assert answer["total"] >= len(load(profile).run.trace.events)


async def test_a_bad_question_is_a_sentence_and_the_process_lives(
    profile, open_profile, post, extension
):
    _, reply = await open_profile("logs/host-a.xplane.pb")
    before = [p.pid for p in extension.pool.processes]
    for request in ({"ask": "no such thing"}, {"ask": "slice", "event": "x"}, {}):
        status, body = await post(
            "ask", {"path": "logs/host-a.xplane.pb", "version": reply.version, "request": request}
        )
        assert status == 200
        answer = codec.unpack(body)
        assert answer["ok"] is False
        assert answer["error"].endswith(".")
    assert [p.pid for p in extension.pool.processes] == before


async def test_a_run_folder_opens_and_a_link_out_of_it_does_not(
    profile, jp_root_dir, tmp_path, open_profile
):
    status, reply = await open_profile("logs")
    assert status == 200, reply.message
    assert reply.payload["meta"]["tabs"]
    (tmp_path / "secret.xplane.pb").write_bytes(training_run(3))
    run = jp_root_dir / "linked"
    run.mkdir()
    (run / "host.xplane.pb").symlink_to(tmp_path / "secret.xplane.pb")
    status, reply = await open_profile("linked")
    assert reply.payload is None
    assert "link that points outside" in reply.message


@pytest.mark.parametrize("name", ["kernel_information.json", "kernel_annotations_rank0_.pkl"])
async def test_what_lies_beside_a_trace_may_not_be_a_link_out_of_the_root(
    jp_root_dir, tmp_path, open_profile, name
):
    trace = Kineto()
    trace.step(0, 0.0, 900.0)
    (jp_root_dir / "a.pt.trace.json").write_bytes(trace.encode())
    (tmp_path / "secret").write_bytes(b"{}")
    (jp_root_dir / name).symlink_to(tmp_path / "secret")
    assert "link that points outside" in (await open_profile("a.pt.trace.json"))[1].message


async def test_a_torch_trace_opens_packed_or_not(jp_root_dir, open_profile):
    trace = Kineto()
    for i in range(4):
        trace.step(i, i * 1000.0, 900.0)
        trace.launched(
            "gemm",
            i * 1000.0 + 100,
            i * 1000.0 + 200,
            300.0,
            trace.op("aten::mm", i * 1000.0 + 50, 100.0),
        )
    data = trace.encode()
    (jp_root_dir / "a.pt.trace.json").write_bytes(data)
    (jp_root_dir / "a.pt.trace.json.gz").write_bytes(gzip.compress(data))
    for name in ("a.pt.trace.json", "a.pt.trace.json.gz"):
        status, reply = await open_profile(name)
        assert status == 200, reply.message
        assert reply.payload["meta"]["framework"].startswith("PyTorch")


@pytest.mark.parametrize(
    "path",
    [
        "../outside.xplane.pb",
        "logs/../../outside.xplane.pb",
        "logs/./host-a.xplane.pb",
        "/../outside.xplane.pb",
        "logs/%2e%2e/%2e%2e/outside.xplane.pb",
        "..",
        "",
        "/",
        "nothing.xplane.pb",
        "logs/host-a.xplane.pb\0.json",
        "file:///etc/passwd",
        "https://example.invalid/x.xplane.pb",
        "a" * 5000,
    ],
)
async def test_no_path_leads_out_of_the_root(profile, jp_root_dir, open_profile, extension, path):
    (jp_root_dir.parent / "outside.xplane.pb").write_bytes(training_run(3))
    status, reply = await open_profile(path)
    assert status in (404, 422)
    assert reply.message.endswith(".")
    assert not extension.pool.opened


async def test_no_link_leads_out_of_the_root(jp_root_dir, open_profile, extension):
    outside = jp_root_dir.parent / "outside"
    outside.mkdir()
    (outside / "host.xplane.pb").write_bytes(training_run(3))
    (jp_root_dir / "file.xplane.pb").symlink_to(outside / "host.xplane.pb")
    (jp_root_dir / "folder").symlink_to(outside)
    for path in ("file.xplane.pb", "folder/host.xplane.pb", "folder"):
        status, reply = await open_profile(path)
        assert status == 403
        assert "c.NbprofServer.follow_links" in reply.message
    extension.follow_links = True
    status, reply = await open_profile("folder/host.xplane.pb")
    assert status == 200, reply.message


async def test_a_root_that_is_a_neighbour_by_name_is_no_root(jp_root_dir, open_profile):
    neighbour = jp_root_dir.parent / (jp_root_dir.name + "-secret")
    neighbour.mkdir()
    (neighbour / "host.xplane.pb").write_bytes(training_run(3))
    (jp_root_dir / "host.xplane.pb").symlink_to(neighbour / "host.xplane.pb")
    assert (await open_profile("host.xplane.pb"))[0] == 403


async def test_what_is_hidden_stays_hidden(jp_root_dir, open_profile):
    (jp_root_dir / ".secret").mkdir()
    (jp_root_dir / ".secret" / "host.xplane.pb").write_bytes(training_run(3))
    (jp_root_dir / "host.xplane.pb").symlink_to(jp_root_dir / ".secret" / "host.xplane.pb")
    for path in (".secret/host.xplane.pb", "host.xplane.pb"):
        assert (await open_profile(path))[0] == 404


@pytest.mark.parametrize("name", ["open", "ask", "ready"])
async def test_nothing_is_answered_without_the_token(
    profile, http_server_client, jp_base_url, extension, name
):
    for headers in ({}, {"Authorization": "token wrong"}):
        answer = await http_server_client.fetch(
            f"{jp_base_url}nbprof/api/{name}", method="POST", headers=headers, raise_error=False,
            body=json.dumps({"path": "logs/host-a.xplane.pb"}),
        )  # fmt: skip
        assert answer.code == 403
    assert not extension.pool.processes


async def test_a_page_of_another_site_may_not_ask(
    profile, http_server_client, jp_base_url, jp_serverapp, extension
):
    """A browser that is logged in sends its cookie from any page; the XSRF token it does not."""
    token = jp_serverapp.identity_provider.token
    login = await http_server_client.fetch(
        f"{jp_base_url}lab?token={token}", follow_redirects=False, raise_error=False
    )
    if not login.headers.get_list("Set-Cookie"):
        login = await http_server_client.fetch(
            f"{jp_base_url}api/me?token={token}", follow_redirects=False, raise_error=False
        )
    cookies = "; ".join(cookie.split(";")[0] for cookie in login.headers.get_list("Set-Cookie"))
    assert cookies
    body = json.dumps({"path": "logs/host-a.xplane.pb"})

    async def post(**headers):
        url = f"{jp_base_url}nbprof/api/open"
        return await http_server_client.fetch(
            url, method="POST", body=body, headers={"Cookie": cookies, **headers}, raise_error=False
        )

    me = await http_server_client.fetch(
        f"{jp_base_url}api/me", headers={"Cookie": cookies}, raise_error=False
    )
    assert me.code == 200, "the cookie logs in"
    assert (await post()).code == 403
    assert not extension.pool.opened
    xsrf = [part.split("=", 1)[1] for part in cookies.split("; ") if part.startswith("_xsrf")]
    assert (await post(**{"X-XSRFToken": xsrf[0]})).code == 200


class TestNotAllowed:
    @pytest.fixture
    def jp_server_config(self):
        from jupyter_server.auth import Authorizer

        class Nobody(Authorizer):
            def is_authorized(self, handler, user, action, resource):
                return resource != "contents"

        return {"ServerApp": {"jpserver_extensions": {"nbprof": True}, "authorizer_class": Nobody}}

    @pytest.mark.parametrize("name", ["open", "ask", "ready"])
    async def test_who_may_not_read_the_contents_may_not_open_profiles(
        self, profile, post, extension, name
    ):
        status, _ = await post(
            name, {"path": "logs/host-a.xplane.pb", "version": "", "request": {}}
        )
        assert status == 403
        assert not extension.pool.processes


@pytest.mark.parametrize(
    "body", [b"", b"{", b"[]", b"\xff", b"1", b'{"path": 1}', b'{"path": ["logs"]}', b"[" * 100_000]
)
async def test_a_request_that_is_none_is_refused(post, body):
    for name in ("open", "ask"):
        status, answer = await post(name, body)
        assert status == 400
        assert json.loads(answer)["message"].endswith(".")


async def test_a_huge_request_is_refused(profile, post):
    for name in ("open", "ask"):
        status, answer = await post(name, b'{"path": "' + b"a" * MOST_BYTES + b'"}')
        assert status == 413
        assert json.loads(answer)["message"].endswith(".")


@pytest.mark.parametrize(
    ("name", "data"),
    [
        ("empty.xplane.pb", b""),
        ("text.xplane.pb", b"no profile at all"),
        ("cut.trace.json.gz", gzip.compress(b'{"traceEvents": [', mtime=0)[:15]),
    ],
)
async def test_what_is_no_profile_is_a_sentence_with_the_place(
    jp_root_dir, open_profile, extension, name, data
):
    (jp_root_dir / "broken").mkdir()
    (jp_root_dir / "broken" / name).write_bytes(data)
    status, reply = await open_profile(f"broken/{name}")
    assert reply.payload is None
    assert status in (200, 422)
    assert reply.message.startswith(f"broken/{name}")
    assert str(jp_root_dir) not in reply.message
    assert not extension.pool.opened


async def test_a_pipe_is_not_waited_for(jp_root_dir, open_profile):
    os.mkfifo(jp_root_dir / "pipe.xplane.pb")
    status, reply = await open_profile("pipe.xplane.pb")
    assert status == 422
    assert "neither a file nor a folder" in reply.message


async def test_a_changed_or_deleted_file_is_not_answered_for(profile, open_profile, post):
    _, reply = await open_profile("logs/host-a.xplane.pb")
    question = {
        "path": "logs/host-a.xplane.pb",
        "version": reply.version,
        "request": {"ask": "open"},
    }
    profile.write_bytes(training_run(9))
    status, body = await post("ask", question)
    assert status == 409
    assert "changed" in json.loads(body)["message"]
    _, again = await open_profile("logs/host-a.xplane.pb")
    assert len(again.payload["steps"]["step"]) > len(reply.payload["steps"]["step"])
    profile.unlink()
    status, body = await post("ask", question)
    assert status == 404
    assert "deleted" in json.loads(body)["message"]


async def test_a_file_that_is_too_large_says_so(profile, open_profile, extension):
    extension.largest = 100
    status, reply = await open_profile("logs/host-a.xplane.pb")
    assert status == 413
    assert "c.NbprofServer.largest" in reply.message


async def test_several_tabs_share_one_process(profile, open_profile, post, extension, jp_root_dir):
    replies = await asyncio.gather(*[open_profile("logs/host-a.xplane.pb") for _ in range(5)])
    assert len({reply.version for _, reply in replies}) == 1
    assert len(extension.pool.processes) == 1
    question = {
        "path": "logs/host-a.xplane.pb",
        "version": replies[0][1].version,
        "request": {"ask": "open"},
    }
    answers = await asyncio.gather(*[post("ask", question) for _ in range(20)])
    assert {status for status, _ in answers} == {200}
    assert len(extension.pool.processes) == 1
    shutil.copy(profile, jp_root_dir / "b.xplane.pb")
    await open_profile("b.xplane.pb")
    assert len(extension.pool.processes) == 2


async def test_a_module_beside_the_notebook_is_not_run(
    profile, jp_root_dir, open_profile, monkeypatch
):
    """The server runs in the folder that it serves; a file there may be called like a module."""
    mark = jp_root_dir / "was-run"
    for name in ("json", "gzip", "numpy", "pandas", "nbprof"):
        (jp_root_dir / f"{name}.py").write_text(f"open({str(mark)!r}, 'w').close()")
    monkeypatch.chdir(jp_root_dir)
    status, reply = await open_profile("logs/host-a.xplane.pb")
    assert status == 200, reply.message
    assert not mark.exists()


async def test_a_process_is_ready_before_it_is_needed(profile, post, open_profile, extension):
    assert (await post("ready", {}))[0] == 204
    assert (await post("ready", {}))[0] == 204
    (ready,) = extension.pool.processes
    await open_profile("logs/host-a.xplane.pb")
    assert [p.pid for p in extension.pool.processes] == [ready.pid]


@pytest.fixture
def logdir(jp_root_dir):
    """Two runs, the second one newer and with more steps."""
    for i, name in enumerate(("first", "second")):
        run = jp_root_dir / "training" / "plugins" / "profile" / name
        run.mkdir(parents=True)
        (run / "host.xplane.pb").write_bytes(training_run(6 + 2 * i))
        os.utime(run / "host.xplane.pb", (1_700_000_000 + 60 * i,) * 2)
    return jp_root_dir / "training" / "plugins" / "profile"


async def test_a_logdir_opens_its_newest_run_and_names_the_others(logdir, open_profile, extension):
    _, newest = await open_profile("training")
    assert newest.head["run"] == "second"
    assert [(run["name"], run["hosts"]) for run in newest.head["runs"]] == [
        ("second", 1),
        ("first", 1),
    ]
    assert newest.head["runs"][1]["modified"] == "2023-11-14T22:13:20+00:00"
    _, other = await open_profile("training", run="first")
    assert other.head["run"] == "first"
    assert len(other.payload["steps"]["step"]) < len(newest.payload["steps"]["step"])
    assert len(extension.pool.opened) == 2
    _, reply = await open_profile("training", run="third")
    assert reply.payload is None
    assert reply.message.startswith("training: no run is called 'third'; there are second, first.")
    assert (await open_profile("training", run=1))[0] == 400


async def test_a_run_of_a_logdir_is_asked_and_what_changes_below_is_told(
    logdir, open_profile, post, extension
):
    _, reply = await open_profile("training", run="first")
    question = {
        "path": "training",
        "run": "first",
        "version": reply.version,
        "request": {"ask": "hello"},
    }
    assert (await post("ask", question))[0] == 200
    assert (await post("ask", {**question, "request": None}))[0] == 204
    # As after a restart of the server.
    extension.pool._files.clear()
    assert (await post("ask", question))[0] == 200
    (logdir / "second" / "host.xplane.pb").write_bytes(training_run(3))
    assert (await post("ask", {**question, "request": None}))[0] == 204, "another run"
    (logdir / "first" / "host.xplane.pb").write_bytes(training_run(3))
    for request in ({"ask": "hello"}, None):
        assert (await post("ask", {**question, "request": request}))[0] == 409
    (logdir / "first" / "host.xplane.pb").unlink()
    assert (await post("ask", question))[0] == 404


async def test_a_broken_run_leaves_the_choice_of_the_others(logdir, open_profile):
    (logdir / "second" / "host.xplane.pb").write_bytes(b"no profile at all")
    _, reply = await open_profile("training")
    assert reply.payload is None
    assert "second/host.xplane.pb" in reply.message
    assert [run["name"] for run in reply.head["runs"]] == ["second", "first"]


async def test_a_newer_run_is_found_when_the_logdir_is_opened_again(logdir, open_profile):
    await open_profile("training")
    (logdir / "third").mkdir()
    (logdir / "third" / "host.xplane.pb").write_bytes(training_run(5))
    assert (await open_profile("training"))[1].head["run"] == "third"


async def test_runs_that_are_hidden_or_outside_are_not_listed(logdir, open_profile, tmp_path):
    outside = tmp_path / "outside"
    outside.mkdir()
    (outside / "host.xplane.pb").write_bytes(training_run(3))
    (logdir / "linked").symlink_to(outside)
    (logdir / ".hidden").mkdir()
    (logdir / ".hidden" / "host.xplane.pb").write_bytes(training_run(3))
    _, reply = await open_profile("training")
    assert [run["name"] for run in reply.head["runs"]] == ["second", "first"]
    for run in ("linked", ".hidden"):
        _, reply = await open_profile("training", run=run)
        assert "no run is called" in reply.message
        assert str(tmp_path) not in reply.message


async def test_a_folder_that_is_too_large_together_says_so(logdir, open_profile, extension):
    (logdir / "first" / "other.xplane.pb").write_bytes(training_run(6))
    extension.largest = int(1.5 * (logdir / "first" / "other.xplane.pb").stat().st_size)
    _, reply = await open_profile("training", run="second")
    assert reply.payload is not None
    _, reply = await open_profile("training", run="first")
    assert "c.NbprofServer.largest" in reply.message


async def test_two_tabs_on_a_logdir_share_a_process(logdir, open_profile, extension):
    replies = await asyncio.gather(*[open_profile("training") for _ in range(4)])
    assert len({reply.version for _, reply in replies}) == 1
    assert len(extension.pool.opened) == 1


async def test_output_of_ascend_opens_and_a_raw_recording_says_how_it_is_exported(
    jp_root_dir, open_profile
):
    tasks, marks = msprof.training(4)
    msprof.prof(jp_root_dir / "npu" / "PROF_000001_20230818142704322_ABC", tasks, marks)
    _, reply = await open_profile("npu")
    assert reply.payload is not None
    raw = jp_root_dir / "raw" / "PROF_000001_20230818142704322_ABC" / "device_0" / "data"
    raw.mkdir(parents=True)
    _, reply = await open_profile("raw")
    assert reply.payload is None
    assert "Ascend's profiler (msprof)" in reply.message
    assert "msprof --export=on" in reply.message
    assert str(jp_root_dir) not in json.dumps(reply.head)
    assert reply.head["raw"] == "Ascend's profiler (msprof)"
