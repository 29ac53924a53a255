"""Sampling servers that behave as they are told: late, busy, idle, broken, old, or no profilers at
all.
"""

from __future__ import annotations

import contextlib
import errno
import gc
import json
import re
import shutil
import socket
import sys
import threading
import time
from pathlib import Path

import pytest

import nbprof
from nbprof.capture.remote.messages import ProfileResponse
from nbprof.core.errors import CaptureError
from nbprof.sources.recording import CaptureInfo
from tests.capture.notes import text_of
from tests.support import programs
from tests.support.ctrl_c import ctrl_c
from tests.support.places import space
from tests.support.profiler_server import Refuse, answer, standing_in

BUSY = Refuse("INTERNAL", "Another profiling session active.")
NOBODY = "localhost:1"


def sample(*servers, duration_ms=20, delay_ms=0, **options):
    addresses = [getattr(server, "address", server) for server in servers]
    return nbprof.capture(addresses, duration_ms, delay_ms=delay_ms, progress=False, **options)


def notes(profile):
    capture = profile.run.capture
    return "\n".join(note.text for note in capture.notes + capture.warnings)


def xspace(server):
    """The recording in the server's last answer."""
    return ProfileResponse.decode(server.answers[-1]).xspace


def test_one_worker():
    with standing_in(answer("trainer-0")) as server:
        profile = sample(server, host_level=3, device_level=0, python_level=1)
        request = server.requests[0]
    assert profile.hosts == ["trainer-0"]
    assert nbprof.last is profile
    folder = Path(profile.path)
    assert folder.parent == Path.cwd() / "nbprof-results" / "plugins" / "profile"
    assert time.strptime(folder.name, "%Y_%m_%d_%H_%M_%S")
    assert sorted(file.name for file in folder.iterdir()) == [
        f"localhost_{server.port}.xplane.pb",
        "nbprof.json",
    ]
    assert (folder / f"localhost_{server.port}.xplane.pb").read_bytes() == bytes(xspace(server))
    assert (request[1], request[9], request[6], request[7]) == (
        20,
        1,
        folder.name,
        f"localhost_{server.port}",
    )
    assert {no: request[4].get(no, 0) for no in (2, 3, 4, 8, 9)} == {2: 3, 3: 0, 4: 1, 8: 0, 9: 20}
    capture = CaptureInfo.read(folder)
    assert capture.options["addresses"] == [server.address]
    assert (capture.options["duration_ms"], capture.elapsed_s) == (20, 0.02)
    text = text_of(capture.notes, "workers_sampled")
    assert text == f"sampled over gRPC: {server.address}, 0.02 s"
    assert len(capture.notes) == 1
    assert not capture.cell_failed
    assert not list(Path("nbprof-results").glob(".recording*"))
    assert nbprof.load(folder).hosts == ["trainer-0"]


def test_a_run_has_the_name_that_it_is_given_and_a_number_where_that_is_taken():
    with standing_in() as server:
        first = sample(server, name="lr 0.1 (warm)")
        second = sample(server, name="lr 0.1 (warm)")
        assert server.requests[0][6] == "lr 0.1 (warm)"
    assert Path(first.path).name == first.run.capture.label == "lr 0.1 (warm)"
    assert Path(second.path).name == "lr 0.1 (warm)_2"
    assert nbprof.load(first.path).hosts == ["machine"]


@pytest.mark.parametrize(
    "name", ["", "a/b", "..", ".x", "a.", "a ", " a", "a\n", "a\0", "a" * 61, 7, "a:b", "C:\\x"]
)
def test_a_name_that_no_disk_takes_is_refused(name):
    with pytest.raises(CaptureError, match="the name of a run has up to 60 letters"):
        sample(NOBODY, name=name)
    assert not Path("nbprof-results").exists()


def test_all_begin_at_one_time_after_the_delay():
    with standing_in() as a, standing_in(answer("other")) as b:
        before = time.time_ns()
        profile = sample(a, b, delay_ms=150)
        starts = [server.requests[0][4][8] for server in (a, b)]
    assert starts[0] == starts[1]
    assert 150e6 <= starts[0] - before < 10e9
    assert sorted(profile.hosts) == ["machine", "other"]


@pytest.mark.parametrize(
    ("first", "second", "hosts"),
    [
        ("a", "b", ["a", "b"]),
        ("vm", "vm", ["vm:{0}", "vm:{1}"]),
        ("", "", ["localhost:{0}", "localhost:{1}"]),
        ("", "b", ["localhost:{0}", "b"]),
    ],
)
def test_each_worker_is_a_host_also_two_of_one_machine(first, second, hosts):
    with standing_in(answer(first)) as a, standing_in(answer(second)) as b:
        profile = sample(a, b)
        expected = [name.format(a.port, b.port) for name in hosts]
    assert sorted(profile.hosts) == sorted(expected)
    assert len(list(Path(profile.path).glob("*.xplane.pb"))) == 2
    assert not [note for note in profile.receipt.entries if note.level == "warning"]
    # What TensorBoard reads is as it was sent, behind the name.
    for server in (a, b):
        assert (
            (Path(profile.path) / f"localhost_{server.port}.xplane.pb")
            .read_bytes()
            .endswith(bytes(xspace(server)))
        )


def test_a_recording_larger_than_grpc_allows_by_default():
    data = (
        space()
        + b"\xfa\x01"
        + (lambda n: bytes([n & 127 | 128, n >> 7 & 127 | 128, n >> 14 & 127 | 128, n >> 21]))(
            6_000_000
        )
        + bytes(6_000_000)
    )
    with standing_in(answer("big", data)) as server:
        profile = sample(server)
    assert profile.run.source.bytes > 6_000_000
    assert profile.hosts == ["big"]


@pytest.mark.parametrize(
    "before",
    [
        answer(empty=True),
        BUSY,
        Refuse("ALREADY_EXISTS", "session"),
        Refuse("UNAVAILABLE", "Socket closed"),
        Refuse("UNKNOWN", "Stream removed"),
        answer(data=b"\x0a\xff"),
    ],
)
def test_a_worker_that_was_not_ready_is_asked_again(before):
    with standing_in(before, before, answer("late")) as server:
        profile = sample(server, retries=2)
        assert len(server.requests) == 3
    assert profile.hosts == ["late"]
    assert f"{server.address} was recorded on attempt 3: " in notes(profile)


def test_it_is_asked_no_more_often_than_was_said():
    with standing_in(answer(empty=True)) as server:
        with pytest.raises(
            CaptureError, match=rf"localhost:{server.port}: nothing happened there .* \(3 tries\)"
        ):
            sample(server, retries=2)
        assert len(server.requests) == 3
        with pytest.raises(CaptureError, match="is it training"):
            sample(server, retries=0)
        assert len(server.requests) == 4
    assert not list(Path().rglob("*.xplane.pb"))
    assert not list(Path("nbprof-results").glob(".recording*"))


def test_who_is_asked_again_begins_at_once_and_it_is_said_how_much_later():
    with standing_in(answer("a")) as a, standing_in(BUSY, answer("b")) as b:
        profile = sample(a, b, delay_ms=100)
        assert [request[4].get(8, 0) > 0 for request in b.requests] == [True, False]
    assert sorted(profile.hosts) == ["a", "b"]


@pytest.mark.parametrize(
    ("refusal", "says"),
    [
        (Refuse("UNIMPLEMENTED", "Method not found!"), "has no profiler service"),
        (Refuse("PERMISSION_DENIED", "no"), "it answered PERMISSION_DENIED: no"),
        (Refuse("INTERNAL"), "it answered INTERNAL"),
        (Refuse("RESOURCE_EXHAUSTED", "message larger"), "too large to send"),
    ],
)
def test_what_a_second_try_would_not_change_is_tried_once(refusal, says):
    with standing_in(refusal) as server:
        with pytest.raises(CaptureError, match=says):
            sample(server)
        assert len(server.requests) == 1


def test_partial_results_are_kept_and_the_missing_named():
    with (
        standing_in(answer("good")) as good,
        standing_in(answer(empty=True)) as idle,
        standing_in(service="some.Other") as other,
    ):
        profile = sample(good, idle, other, NOBODY, retries=1)
    assert profile.hosts == ["good"]
    text = notes(profile)
    assert "sampled over gRPC: 1 of 4 workers" in text
    assert f"{idle.address} is missing: nothing happened there" in text
    assert f"{other.address} is missing: the server on this port has no profiler service" in text
    assert f"{NOBODY} is missing: nothing listens on this port: is the worker running" in text
    assert [
        note.text.partition(" ")[0] for note in profile.receipt.entries if note.level == "warning"
    ] == [
        idle.address,
        other.address,
        NOBODY,
    ]
    assert notes(nbprof.load(profile.path)) == text


def test_when_nobody_records_all_are_named():
    with standing_in(answer(empty=True)) as idle, pytest.raises(CaptureError) as caught:
        sample(idle, NOBODY, retries=0)
    assert str(caught.value).startswith(
        f"no worker could be recorded. {idle.address}: nothing happened"
    )
    assert f"{NOBODY}: nothing listens on this port" in str(caught.value)


def test_a_web_server_is_no_profiler():
    listener = socket.create_server(("localhost", 0))

    def serve():
        with contextlib.suppress(OSError):
            while True:
                peer, _ = listener.accept()
                with peer:
                    peer.recv(1000)
                    peer.sendall(b"HTTP/1.1 400 Bad Request\r\nConnection: close\r\n\r\n")

    thread = threading.Thread(target=serve, daemon=True)
    thread.start()
    with listener:
        with pytest.raises(CaptureError, match="does not speak gRPC"):
            sample(f"localhost:{listener.getsockname()[1]}")
        # Before it is closed: the thread would go on to accept what connects to the next socket
        # with this number, in another test.
        listener.shutdown(socket.SHUT_RDWR)
        thread.join()


def test_what_never_answers_is_given_up(short):
    with (
        socket.create_server(("localhost", 0)) as listener,
        pytest.raises(CaptureError, match=r"no answer within|does not answer"),
    ):
        sample(f"localhost:{listener.getsockname()[1]}")


def test_a_slow_worker_is_waited_for_no_longer_than_the_slack(short):
    def hangs(request, server):
        server.end.wait(20)
        return answer("slow")

    with standing_in(hangs) as slow, standing_in(answer("quick")) as quick:
        profile = sample(slow, quick)
    assert profile.hosts == ["quick"]
    assert f"{slow.address} is missing: no answer within 0 s: it hangs" in notes(profile)


def test_a_machine_without_a_name():
    with pytest.raises(CaptureError, match=r"no machine named nobody\.invalid|cannot be reached"):
        sample("nobody.invalid:6009", retries=0)


def old_server(request, server):
    """As before `emit_xspace`: the file is written by the server, and the answer is empty."""
    file = Path(request[5]) / request[6] / f"{request[7]}.xplane.pb"
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_bytes(ProfileResponse.decode(answer("old")).xspace)
    return b""


def test_an_old_server_on_this_machine_writes_its_file_to_the_right_place():
    with standing_in(old_server) as old, standing_in(answer("new")) as new:
        profile = sample(old, new)
    assert sorted(profile.hosts) == ["new", "old"]


def test_an_old_server_elsewhere_is_told_of_the_remedy():
    with standing_in(b"") as server:
        with pytest.raises(
            CaptureError,
            match=r"this older server wrote its file .* on its own machine: choose a --logdir",
        ):
            sample(server)
        assert len(server.requests) == 1

    def cannot(request, server):
        return Refuse("INTERNAL", f"{request[5]}; Permission denied")

    with (
        standing_in(cannot) as server,
        pytest.raises(CaptureError, match=r"could not write to .*: choose a --logdir"),
    ):
        sample(server)


def test_an_empty_recording_of_an_old_server_leaves_no_file():
    def empty(request, server):
        old_server(request, server)
        return b"\x38\x01"

    with standing_in(empty) as server, pytest.raises(CaptureError, match="nothing happened there"):
        sample(server, retries=0)


def test_a_logdir_that_cannot_be_written_is_said_before_anything_is_recorded():
    Path("file").write_text("")
    with standing_in() as server:
        with pytest.raises(
            CaptureError, match=r"file cannot be written .*nothing was recorded. Choose a --logdir"
        ):
            sample(server, logdir="file")
        assert not server.requests


def test_a_full_disk_is_said_and_leaves_no_half_file(monkeypatch):
    whole = Path.open

    def full(self, mode="r", *args, **kwargs):
        if self.name.startswith("localhost_") and "w" in mode:
            whole(self, mode).close()
            raise OSError(errno.ENOSPC, "No space left on device")
        return whole(self, mode, *args, **kwargs)

    with standing_in() as server:
        monkeypatch.setattr(Path, "open", full)
        with pytest.raises(
            CaptureError,
            match=r"its [\d.]+ B could not be written to .* \(No space left on device\): choose another location with --logdir DIR",
        ):
            sample(server)
    assert not list(Path().rglob("*.xplane.pb"))


def test_a_disk_that_is_full_for_a_new_name_loses_nothing(monkeypatch):
    def full(*args):
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(shutil, "copyfileobj", full)
    with standing_in(answer("vm")) as a, standing_in(answer("vm", space("other/Add:Add"))) as b:
        profile = sample(a, b)
    assert len(profile.hosts) == 2
    assert not list(Path(profile.path).glob("*.named"))


def test_without_save_the_files_go_with_the_profile():
    with standing_in() as server:
        profile = sample(server, save=False)
    folder = Path(profile.path)
    assert list(folder.glob("*.xplane.pb"))
    assert not Path("nbprof-results").exists()
    with standing_in() as server:
        profile = sample(server, save=False)
    gc.collect()
    assert not folder.exists()


def test_nor_do_they_outlive_the_process():
    with standing_in() as server:
        code = f"import nbprof; print(nbprof.capture('{server.address}', 20, save=False, progress=False).path)"
        done = programs.run(code, needs="nbprof")
    assert "nbprof-" in done.stdout
    assert not Path(done.stdout.strip()).exists()


def test_runs_of_one_second_do_not_overwrite_each_other():
    with standing_in() as server:
        paths = {sample(server, logdir="logs").path for _ in range(3)}
    assert len(paths) == 3
    assert len(nbprof.runs("logs")) == 3


def test_an_answer_that_is_no_profile_is_said():
    with (
        standing_in(b"\xff\xff") as server,
        pytest.raises(CaptureError, match="its answer is not a profile"),
    ):
        sample(server)
    with (
        standing_in(answer(data=b"\x0a\x7fabc")) as server,
        pytest.raises(CaptureError, match=r"its recording is damaged .*\(2 tries\)"),
    ):
        sample(server, retries=1)


def waits(request, server):
    """Records until it is told to stop."""
    server.end.wait(20)
    return answer("stopped")


def when(wait_for, over):
    """Wait until all of these lists hold something; False if the test is over before."""
    while not all(wait_for):
        if over.wait(0.005):
            return False
    return not over.wait(0.05)


def test_ctrl_c_gives_what_was_recorded_until_then():
    with standing_in(waits) as a, standing_in(waits) as b:
        with ctrl_c(lambda over: when([a.requests, b.requests], over)):
            profile = sample(a, b, duration_ms=15_000)
        assert [len(server.ended) for server in (a, b)] == [1, 1]
        assert a.ended == [Path(profile.path).name]
    assert sorted(profile.hosts) == [f"stopped:{port}" for port in sorted((a.port, b.port))]
    assert "the recording was stopped early, after " in notes(profile)
    assert profile.run.capture.elapsed_s < 15


def test_a_second_ctrl_c_waits_no_longer_and_keeps_what_came():
    def deaf(request, server):
        time.sleep(0.5)
        return answer("deaf")

    with (
        standing_in(answer("came")) as a,
        standing_in(deaf) as b,
        ctrl_c(lambda over: when([b.requests], over), lambda over: when([b.ended], over)),
    ):
        profile = sample(a, b, duration_ms=15_000)
    assert profile.hosts == ["came"]
    assert f"{b.address} is missing: it had not answered when the recording was abandoned" in notes(
        profile
    )


def test_ctrl_c_before_anything_was_recorded_is_an_interrupt():
    with (
        standing_in(waits) as server,
        ctrl_c(lambda over: when([server.requests], over)),
        pytest.raises(KeyboardInterrupt),
    ):
        sample(server, delay_ms=20_000)
    assert not list(Path("nbprof-results").glob(".recording*"))


def test_the_line_says_what_goes_on_four_times_a_second_at_most():
    texts = []

    def slowly(request, server):
        time.sleep(0.7)
        return answer("slow")

    with standing_in(answer("quick")) as quick, standing_in(slowly) as slow:
        began = time.monotonic()
        nbprof.capture([quick.address, slow.address], 100, delay_ms=0, progress=texts.append)
    # One for the beginning, and one that falls due as it ends.
    assert len(texts) <= 4 * (time.monotonic() - began) + 2
    assert re.match(r"nbprof: recording 2 workers · \d+\.\d of 0\.1 s", texts[0])
    assert any(f"waiting for {slow.address}" in text and "1 of 2 came" in text for text in texts), (
        texts
    )


def test_a_line_that_cannot_be_shown_harms_nothing():
    def fails(text):
        raise RuntimeError("the front end has gone")

    with standing_in() as server:
        assert nbprof.capture(server.address, 20, progress=fails).hosts == ["machine"]


def test_without_grpcio_the_sentence_says_what_to_install(monkeypatch):
    monkeypatch.setitem(sys.modules, "grpc", None)
    with pytest.raises(CaptureError, match=r"needs grpcio.*pip install 'nbprof\[remote\]'"):
        sample(NOBODY)
    assert not Path("nbprof-results").exists()


def test_a_proxy_for_web_pages_is_not_asked(monkeypatch):
    for name in ("http_proxy", "https_proxy", "grpc_proxy"):
        monkeypatch.setenv(name, "http://localhost:1")
    monkeypatch.setenv("no_proxy", "")
    with standing_in() as server:
        assert sample(server).hosts == ["machine"]


def test_many_workers():
    with contextlib.ExitStack() as stack:
        servers = [stack.enter_context(standing_in(answer(f"h{i}"))) for i in range(12)]
        profile = sample(*servers)
    assert sorted(profile.hosts) == sorted(f"h{i}" for i in range(12))


def test_the_info_is_plain_json():
    with standing_in() as server:
        profile = sample(server)
    assert json.loads((Path(profile.path) / "nbprof.json").read_text())["options"]["retries"] == 3
