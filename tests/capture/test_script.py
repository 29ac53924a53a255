"""`nbprof run`: a script or a module runs, fails and ends as it does with `python`."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import textwrap
import time
import zipapp
from pathlib import Path

import pytest

import nbprof
from nbprof.sources.recording import CaptureInfo

ROOT = Path(__file__).resolve().parents[2]
LIMIT_S = 300


@pytest.fixture
def folder(tmp_path):
    path = tmp_path / "a b"
    path.mkdir()
    return path


def python(folder, *words, stdin=""):
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    for name in ("RANK", "WORLD_SIZE", "NBPROF_RUN"):
        environment.pop(name, None)
    return subprocess.run(
        [sys.executable, *map(str, words)],
        cwd=folder,
        env=environment,
        input=stdin,
        capture_output=True,
        text=True,
        timeout=LIMIT_S,
        check=False,
    )


def recorded(folder, *words, stdin=""):
    return python(folder, "-m", "nbprof", "run", *words, stdin=stdin)


def write(folder, text, name="train.py"):
    path = folder / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(textwrap.dedent(text))
    return path


def the_run(folder):
    (run,) = (folder / "nbprof-results" / "plugins" / "profile").iterdir()
    return run


def same(folder, *words, stdin=""):
    """Run with and without nbprof; returns the recorded one."""
    plain = python(folder, *words, stdin=stdin)
    result = recorded(folder, *words, stdin=stdin)
    assert result.returncode == plain.returncode, result.stderr
    assert result.stdout == plain.stdout
    assert result.stderr.startswith(plain.stderr)
    return result


FACTS = """
    import pickle, sys

    def double(x):
        return 2 * x

    print(sys.argv, sys.path[0], sys.stdin.read())
    print(__name__, __file__, __spec__, __package__, __doc__, __builtins__.__name__)
    print(sorted(name for name in globals()), sys.modules["__main__"].double is double)
    print(pickle.loads(pickle.dumps(double)) is double, sys.stdout.errors, sys.flags.optimize)
"""


def test_a_script_finds_what_python_gives_it(folder):
    write(folder, FACTS)
    result = same(folder, "train.py", "--lr", "3", "-m", stdin="a line")
    assert "['train.py', '--lr', '3', '-m']" in result.stdout
    assert "a line" in result.stdout
    assert str(the_run(folder)) in result.stderr


def test_a_script_from_another_folder(folder):
    write(folder / "project", "import helper\n", "train.py")
    write(folder / "project", "print(__file__)\n", "helper.py")
    result = same(folder, Path("project", "train.py"))
    assert "helper.py" in result.stdout


def test_a_module_with_relative_imports(folder):
    write(folder, "", "package/__init__.py")
    write(folder, "print('helper', __name__)", "package/helper.py")
    write(
        folder,
        """
        import sys
        from . import helper
        print(sys.argv, sys.path[0], __name__, __package__, __spec__.name, __file__)
        sys.exit(4)
        """,
        "package/work.py",
    )
    write(folder, "from .work import helper", "package/__main__.py")
    result = same(folder, "-m", "package.work", "--lr", "3")
    assert "helper package.helper" in result.stdout
    assert result.returncode == 4
    assert same(folder, "-m", "package").returncode == 4


def test_an_archive(folder):
    write(folder, "import sys; print(sys.argv, __name__)", "source/__main__.py")
    zipapp.create_archive(folder / "source", folder / "train.pyz")
    assert "__main__" in same(folder, "train.pyz", "1").stdout
    assert "__main__" in same(folder, "source", "1").stdout


@pytest.mark.parametrize(
    ("ending", "code"),
    [
        ("sys.exit(7)", 7),
        ("sys.exit()", 0),
        ("sys.exit('a reason')", 1),
        ("raise ValueError('boom')", 1),
        ("x = (1", 1),
        ("os._exit(9)", 9),
        ("os.execv(sys.executable, [sys.executable, '-c', 'raise SystemExit(5)'])", 5),
        ("os.kill(os.getpid(), signal.SIGINT); time.sleep(60)", -signal.SIGINT),
        ("os.kill(os.getpid(), signal.SIGTERM); time.sleep(60)", -signal.SIGTERM),
        ("threading.Thread(target=lambda: (time.sleep(0.2), print('thread'))).start()", 0),
        ("atexit.register(print, 'at exit')", 0),
        ("shutil.rmtree(os.getcwd())", 0),
        ("os.chdir('/')", 0),
    ],
)
def test_each_end_is_that_of_python(folder, ending, code):
    names = "import atexit, os, shutil, signal, sys, threading, time\n"
    home = folder / "home"
    for run in (python, recorded):
        write(home, f"{names}print('began', flush=True)\n{ending}\n")
        result = run(home, "train.py")
        assert result.returncode == code, result.stderr
        if run is python:
            plain = result
    assert result.stdout == plain.stdout
    assert result.stderr.startswith(plain.stderr)
    if "rmtree" not in ending and "x = (1" not in ending:
        profile = nbprof.load(home / "nbprof-results")
        assert profile.run.capture.by == "script"
        failed = "ValueError" in ending or "exit(7)" in ending or "kill" in ending
        assert profile.run.capture.cell_failed == (failed or "a reason" in ending)


def test_a_second_interrupt_does_not_lose_the_recording(folder):
    write(
        folder,
        """
        import os, signal, threading, time
        main = threading.main_thread().ident

        class Twice:
            # Ends with the traceback, when the recording is about to be saved.
            def __del__(self):
                signal.pthread_kill(main, signal.SIGINT)

        def train():
            twice = Twice()
            os.kill(os.getpid(), signal.SIGINT)
            time.sleep(60)

        train()
        """,
    )
    result = recorded(folder, "train.py")
    assert result.returncode == -signal.SIGINT
    assert "KeyboardInterrupt" in result.stderr
    assert nbprof.load(folder / "nbprof-results").run.capture.error.startswith("script was inter")


def test_children_end_as_without(folder):
    write(
        folder,
        """
        import multiprocessing, os, signal, subprocess, sys, time

        def work(n):
            return n + 1

        def wait(queue):
            queue.put(signal.getsignal(signal.SIGTERM) == signal.SIG_DFL)
            time.sleep(60)

        if __name__ == "__main__":
            for method in ("fork", "spawn"):
                context = multiprocessing.get_context(method)
                with context.Pool(2) as pool:
                    print(pool.map(work, range(4)))
                queue = context.Queue()
                child = context.Process(target=wait, args=(queue,))
                child.start()
                print(queue.get())
                child.terminate()
                child.join()
                print(child.exitcode)
            if os.fork() == 0:
                os._exit(3)
            print(os.waitstatus_to_exitcode(os.wait()[1]))
        """,
    )
    result = same(folder, "train.py")
    assert result.stdout.count("True\n") == 2
    assert result.stdout.endswith("3\n")
    assert the_run(folder)


def test_an_open_pool_of_processes_does_not_hold_up_the_end(folder):
    write(
        folder,
        """
        from concurrent.futures import ProcessPoolExecutor

        if __name__ == "__main__":
            pool = ProcessPoolExecutor(1)
            print(pool.submit(abs, -3).result())
        """,
    )
    assert same(folder, "train.py").stdout == "3\n"


def test_a_program_that_handles_the_signal_itself_goes_on(folder):
    write(
        folder,
        """
        import os, signal, time

        signal.signal(signal.SIGTERM, lambda *_: print("checkpoint", flush=True))
        os.kill(os.getpid(), signal.SIGTERM)
        time.sleep(4)
        print("done")
        """,
    )
    assert same(folder, "train.py").stdout == "checkpoint\ndone\n"


def test_a_native_wait_does_not_hold_up_the_end(folder):
    """A thread ends the process where the main thread does not come to handle the signal."""
    write(
        folder,
        """
        import ctypes, os, signal, subprocess, sys
        # The lock is taken, so that the main thread stays in native code.
        libc = ctypes.CDLL(None)
        mutex = ctypes.create_string_buffer(256)
        libc.pthread_mutex_init(mutex, None)
        libc.pthread_mutex_lock(mutex)
        subprocess.Popen([sys.executable, "-c", f"import os; os.kill({os.getpid()}, 15)"])
        libc.pthread_mutex_lock(mutex)
        """,
    )
    assert recorded(folder, "train.py").returncode == -signal.SIGTERM
    assert nbprof.load(folder / "nbprof-results").run.capture.error == "script was ended by SIGTERM"


def test_options_are_those_of_a_cell(folder):
    write(
        folder,
        """
        import nbprof
        for n in nbprof.steps(range(30)):
            sum(range(20_000))
        """,
    )
    result = recorded(
        folder, "--steps", "5:9", "--logdir", "logs", "--report", "r.html", "train.py"
    )
    assert result.returncode == 0, result.stderr
    profile = nbprof.load(folder / "logs")
    assert profile.run.capture.window == [5, 9]
    assert profile.run.capture.label == "train.py"
    assert len(profile.steps.frame) == 5
    assert "train.py" in (folder / "r.html").read_text()
    assert "5 steps" in result.stderr
    quiet = recorded(folder, "--quiet", "train.py")
    assert (quiet.stdout, quiet.stderr) == ("", "")
    assert the_run(folder)


def test_the_loop_of_a_script_is_its_unit(folder):
    write(
        folder,
        """
        def work():
            return sum(range(300_000))

        for n in range(40):
            work()
        """,
    )
    assert recorded(folder, "train.py").returncode == 0
    profile = nbprof.load(folder / "nbprof-results")
    assert len(profile.steps.frame) == 40
    assert any("line 5 of train.py" in line.text for line in profile.receipt.lines)


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["nowhere.py"], "there is no script 'nowhere.py'"),
        (["-m", "nowhere.at_all"], "No module named nowhere.at_all"),
        (["-m", "package"], "it has no module package.__main__"),
        (["--steps", "9:5", "train.py"], "empty range"),
        (["--try", "train.py"], "--try"),
        ([], "Missing argument 'SCRIPT'"),
    ],
)
def test_bad_use_says_so_and_runs_nothing(folder, words, message):
    write(folder, "raise SystemExit(0)")
    write(folder, "", "package/__init__.py")
    result = recorded(folder, *words)
    assert result.returncode == 2
    assert message in result.stderr
    assert "Traceback" not in result.stderr
    assert not (folder / "nbprof-results").exists()


RANKS = """
    import os, signal, sys
    import torch
    import torch.distributed as dist

    dist.init_process_group("gloo")
    rank = dist.get_rank()
    model = torch.nn.Linear(32, 32)
    optimizer = torch.optim.SGD(model.parameters(), 0.1)
    for step in range(20):
        if step == 10 and rank == 3 and sys.argv[1] == "raise":
            raise RuntimeError("bad batch")
        if step == 10 and rank == 3 and sys.argv[1] == "kill":
            os.kill(os.getpid(), signal.SIGKILL)
        optimizer.zero_grad()
        model(torch.randn(8, 32)).sum().backward()
        for parameter in model.parameters():
            dist.all_reduce(parameter.grad)
        optimizer.step()
    # In one piece: the ranks share it.
    os.write(1, f"rank {rank} done{os.linesep}".encode())
    dist.destroy_process_group()
"""


def torchrun(folder, how):
    write(folder, RANKS)
    launcher = ("-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "4")
    if how == "ok":
        # The other form that the documentation names.
        no_python = ("--no-python", sys.executable, "-m", "nbprof", "run")
        return python(folder, *launcher, *no_python, "train.py", how)
    return python(folder, *launcher, "-m", "nbprof", "run", "train.py", how)


def test_ranks_are_the_hosts_of_one_run(torch, folder):
    result = torchrun(folder, "ok")
    assert result.returncode == 0, result.stderr
    assert sorted(result.stdout.split("\n")) == ["", *(f"rank {n} done" for n in range(4))]
    assert result.stderr.count("20 steps on 4 hosts") == 1
    profile = nbprof.load(folder / "nbprof-results")
    assert len(profile.hosts) == 4
    assert not len(profile.pods.missing)
    assert [row["error"] for row in profile.run.capture.ranks] == [""] * 4
    # What is of one process is only shown of that process.
    assert profile.run.capture.python == {}
    for rank in range(4):
        info = profile.rank(rank).run.capture
        assert info == CaptureInfo.read(the_run(folder), rank)
        assert info.python
    assert not list((folder / "nbprof-results").glob(".job-*"))


def test_two_machines_on_one_disk_are_one_run(torch, folder):
    """Each with a launcher and a name of its own, in a namespace."""
    named = ("unshare", "--map-root-user", "--uts", "sh", "-c")
    if subprocess.run([*named, "hostname node"], check=False, capture_output=True).returncode:
        pytest.skip("this user may not name a machine")
    write(folder, RANKS)
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    launcher = f"-m torch.distributed.run --nnodes 2 --nproc-per-node 2 --master-port {port}"
    launcher += " --master-addr 127.0.0.1 --rdzv-backend static"
    script = f'hostname node$1; exec "$0" {launcher} --node-rank $1 -m nbprof run train.py ok'
    launchers = [
        subprocess.Popen(
            [*named, script, sys.executable, str(number)],
            cwd=folder,
            env={**os.environ, "PYTHONPATH": str(ROOT), "GLOO_SOCKET_IFNAME": "lo"},
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )
        for number in range(2)
    ]
    outputs = [each.communicate(timeout=LIMIT_S)[0] for each in launchers]
    assert [each.returncode for each in launchers] == [0, 0], outputs
    # The machine of rank 0 prints the summary.
    assert ["20 steps on 4 hosts" in output for output in outputs] == [True, False]
    profile = nbprof.load(folder / "nbprof-results")
    assert profile.hosts == ["node0_rank0", "node0_rank1", "node1_rank2", "node1_rank3"]
    assert not len(profile.pods.missing)


@pytest.mark.parametrize("how", ["raise", "kill"])
def test_a_rank_that_dies_leaves_its_last_words(torch, folder, how):
    result = torchrun(folder, how)
    assert result.returncode == 1
    capture = CaptureInfo.read(the_run(folder))
    reasons = {row["rank"]: row["error"] for row in capture.ranks}
    if how == "raise":
        assert reasons[3] == "script failed after 10 complete steps: RuntimeError: bad batch"
        assert capture.error.startswith("script of rank 3 failed")
    else:
        assert reasons[3].startswith("script was killed after 10 complete steps")
    profile = nbprof.load(the_run(folder))
    missing = profile.pods.missing
    assert f"Its {reasons[3]}." in missing["reason"].tolist()
    assert ("rank 3" in profile.hosts) == (how == "raise")


class Launcher:
    """Starts ranks as torchrun does: when one fails, it ends the others by SIGTERM."""

    def __init__(self, folder, *words, ranks=2, **variables):
        environment = {**os.environ, "PYTHONPATH": str(ROOT), "WORLD_SIZE": str(ranks), **variables}
        if "NBPROF_RUN" not in variables:
            environment.pop("NBPROF_RUN", None)
        self.ranks = [
            subprocess.Popen(
                [sys.executable, "-m", "nbprof", "run", *words],
                cwd=folder,
                env={**environment, "RANK": str(rank)},
                stdout=subprocess.DEVNULL,
                stderr=(folder / f"stderr{rank}").open("w"),
            )
            for rank in range(ranks)
        ]
        self._folder = folder

    def end(self):
        """Wait for all; returns the exit codes and all that was written to stderr."""
        while all(process.poll() in (None, 0) for process in self.ranks):
            if all(process.poll() == 0 for process in self.ranks):
                break
            time.sleep(0.02)
        for process in self.ranks:
            if process.poll() is None:
                process.terminate()
        codes = [process.wait(LIMIT_S) for process in self.ranks]
        texts = [(self._folder / f"stderr{rank}").read_text() for rank in range(len(codes))]
        return codes, "".join(texts)


MEETING = """
    import os, pathlib, signal, sys, time
    rank, how = int(os.environ["RANK"]), sys.argv[1]
    import nbprof

    def meet(place):
        pathlib.Path(f"{place}.{rank}").touch()
        while len(list(pathlib.Path().glob(f"{place}.?"))) < 2:
            time.sleep(0.01)

    meet("begin")
    for step in nbprof.steps(range(10)):
        time.sleep(0.002)
    meet("steps")
    if rank == 1:
        if how == "raise":
            raise ValueError("bad batch")
        if how == "kill":
            os.kill(os.getpid(), signal.SIGKILL)
    if how != "ok":
        if sys.argv[2] == "native":
            import ctypes
            libc = ctypes.CDLL(None)
            mutex = ctypes.create_string_buffer(256)
            libc.pthread_mutex_init(mutex, None)
            libc.pthread_mutex_lock(mutex)
            libc.pthread_mutex_lock(mutex)
        time.sleep(600)
"""


@pytest.mark.parametrize(
    ("how", "wait"), [("raise", "sleep"), ("raise", "native"), ("kill", "sleep")]
)
def test_the_last_rank_of_a_job_that_fails_shows_its_run(folder, how, wait):
    write(folder, MEETING)
    codes, text = Launcher(folder, "train.py", how, wait).end()
    assert codes == [-signal.SIGTERM, 1 if how == "raise" else -signal.SIGKILL]
    run = the_run(folder)
    assert f"reading the run in {run}\n" in text
    words = {"raise": "failed after 10 complete steps: ValueError: bad batch", "kill": "was killed"}
    assert text.count(f"The script of rank 1 {words[how]}") == 1
    assert text.count("nbprof · train.py") == 1
    missing = nbprof.load(run).pods.missing
    reasons = dict(zip(missing["host"].str[-1], missing["reason"], strict=True))
    assert words[how] in reasons["1"]
    assert reasons["0"] == "Its script was ended by SIGTERM after 10 complete steps."


def test_a_job_that_ends_well_is_shown_once(folder):
    write(folder, MEETING)
    codes, text = Launcher(folder, "train.py", "ok").end()
    assert codes == [0, 0]
    assert text.count("nbprof · train.py") == 1
    assert text.count(str(the_run(folder))) == 1
    assert not list((folder / "nbprof-results").glob(".job-*"))


def test_the_run_of_a_script_that_fails_says_so_once(folder):
    write(folder, "raise ValueError('bad batch')\n")
    result = recorded(folder, "train.py")
    assert result.stderr.count("ValueError: bad batch\n") == 1
    assert result.stderr.count("The script failed") == 1
    assert result.stderr.endswith(f"{the_run(folder)}\n")


@pytest.mark.parametrize("name", ["a/b", "..", "", " x", ".x", "x" * 300])
def test_a_name_that_a_run_cannot_have_is_refused(folder, name):
    write(folder, "print('ran')")
    codes, text = Launcher(folder, "train.py", ranks=2, NBPROF_RUN=name).end()
    if not name:
        assert codes == [0, 0]
        return
    assert 2 in codes
    assert "NBPROF_RUN is" in text
    assert "cannot be the name of a run" in text
    assert not (folder / "nbprof-results").exists()


def test_a_job_with_the_identifiers_of_a_killed_one_has_a_run_of_its_own(folder):
    write(folder, MEETING)
    first = Launcher(folder, "train.py", "wait", "sleep", NBPROF_RUN="nightly")
    home = folder / "nbprof-results"
    while len(list(folder.glob("steps.?"))) < 2:
        assert all(process.poll() is None for process in first.ranks)
        time.sleep(0.05)
    for process in first.ranks:
        process.kill()
        process.wait()
    assert list(home.glob(".job-*"))
    for file in folder.glob("*.?"):
        file.unlink()
    assert Launcher(folder, "train.py", "ok", NBPROF_RUN="nightly").end()[0] == [0, 0]
    runs = home / "plugins" / "profile"
    assert sorted(run.name for run in runs.iterdir()) == ["nightly", "nightly_2"]
    assert not list((runs / "nightly").iterdir())
    assert len(nbprof.load(runs / "nightly_2").hosts) == 2
    assert not list(home.glob(".job-*"))
