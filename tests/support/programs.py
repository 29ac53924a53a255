"""Python programs in processes of their own.

A program that needs a framework is forked from a process that has imported it already: importing
TensorFlow or PyTorch takes longer than most of these programs run. All workers of a test session
share these processes. The interpreter of a forked program ends as any other does: with its exit
handlers, and with status 1 and a traceback after an exception.
"""

from __future__ import annotations

import contextlib
import gc
import hashlib
import importlib
import json
import os
import select
import signal
import socket
import subprocess
import sys
import tempfile
import textwrap
import time
import types
from pathlib import Path
from typing import Any, BinaryIO, NamedTuple

ROOT = Path(__file__).resolve().parents[2]
FOLDER = "NBPROF_TEST_PROGRAMS"
"""Environment variable with the folder of the sockets of a test session."""
SESSION = "NBPROF_TEST_SESSION"
"""Environment variable with the process that hands out the tests of a session."""
LIMIT_S = 300
FORKS = sys.platform == "linux"
"""Elsewhere a process that has threads of native code may not be forked."""
CONVERTER = "xprof.convert.raw_to_tool_data"
KERNEL = "ipykernel.kernelapp"
"""What a kernel is; programs are forked from the same processes as kernels."""


class Ended(NamedTuple):
    """A program that has ended."""

    returncode: int
    stdout: str
    stderr: str


class Program:
    """A Python program that has been started.

    Parameters
    ----------
    code : str
        Its text, which may be indented.
    arguments : tuple of str
        Become `sys.argv[1:]`.
    modules : tuple of str
        Modules that are imported already when it begins; with none it is a new interpreter.
    cwd : Path, optional
    environment : dict of str, optional
        What differs from the environment of this process.
    """

    def __init__(
        self,
        code: str,
        arguments: tuple[str, ...] = (),
        modules: tuple[str, ...] = (),
        cwd: Path | None = None,
        environment: dict[str, str] | None = None,
    ) -> None:
        code = textwrap.dedent(code)
        variables = {
            **os.environ,
            "PYTHONPATH": str(ROOT),
            "TF_CPP_MIN_LOG_LEVEL": "3",
            **(environment or {}),
        }
        self.outputs = [
            tempfile.NamedTemporaryFile("w+", encoding="utf-8", errors="replace")  # noqa: SIM115
            for _ in range(2)
        ]
        self.process: subprocess.Popen[str] | Forked
        if modules and FORKS:
            paths = (self.outputs[0].name, self.outputs[1].name)
            self.process = Forked(modules, code, arguments, cwd, variables, paths)
        else:
            command = [sys.executable, "-c", code, *arguments]
            stdout, stderr = self.outputs
            self.process = subprocess.Popen(
                command,
                stdin=subprocess.DEVNULL,
                stdout=stdout,
                stderr=stderr,
                cwd=cwd,
                env=variables,
            )

    def wait(self) -> Ended:
        """Wait for its end."""
        try:
            status = self.process.wait(LIMIT_S)
        except subprocess.TimeoutExpired:
            self.process.kill()
            status = self.process.wait()
        texts = []
        for output in self.outputs:
            output.seek(0)
            texts.append(output.read())
            output.close()
        return Ended(status, *texts)


def run(
    code: str,
    *arguments: object,
    needs: str = "",
    cwd: Path | None = None,
    status: int = 0,
    **environment: str,
) -> Ended:
    """Run a Python program to its end.

    Parameters
    ----------
    code : str
    *arguments
        Become texts in `sys.argv[1:]`.
    needs : str, optional
        A module that it imports and that takes long to import; a test skips where it is not
        installed.
    cwd : Path, optional
    status : int, optional
        The exit status that it must end with.
    **environment
        What differs from the environment of this process.
    """
    if needs:
        # Not at the top: the processes that programs are forked from do without pytest.
        from tests.support.profiles import require

        require(needs.partition(".")[0])
    modules = (needs,) if needs else ()
    ended = Program(code, tuple(map(str, arguments)), modules, cwd, environment).wait()
    assert ended.returncode == status, ended.stderr[-3000:] or ended.stdout[-3000:]
    return ended


def piped(modules: tuple[str, ...], code: str, *arguments: str) -> Forked | subprocess.Popen[bytes]:
    """Start a program whose standard input and output are pipes."""
    if FORKS:
        return Forked.piped(modules, code, arguments)
    return subprocess.Popen(
        [sys.executable, "-c", code, *arguments],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
    )


class Forked:
    """A process forked from one that has imported some modules, with the methods of
    `subprocess.Popen` that tests need.
    """

    stdin: BinaryIO | None = None
    stdout: BinaryIO | None = None
    stderr = None

    def __init__(
        self,
        modules: tuple[str, ...],
        code: str,
        arguments: tuple[str, ...],
        cwd: Path | str | None,
        variables: dict[str, str],
        outputs: tuple[str, str] = (os.devnull, os.devnull),
        stdin: str = os.devnull,
    ) -> None:
        if len(modules) == 1 and modules != (CONVERTER,):
            modules = (KERNEL, *modules)
        self.modules = modules
        self.returncode: int | None = None
        self.pid = _ask(
            modules,
            code=code,
            arguments=arguments,
            cwd=str(cwd or Path.cwd()),
            environment=variables,
            outputs=outputs,
            stdin=stdin,
        )

    @classmethod
    def piped(cls, modules: tuple[str, ...], code: str, arguments: tuple[str, ...]) -> Forked:
        """Start a program whose standard input and output are pipes."""
        with tempfile.TemporaryDirectory() as folder:
            stdin, stdout = (str(Path(folder, name)) for name in ("stdin", "stdout"))
            os.mkfifo(stdin)
            os.mkfifo(stdout)
            process = cls(
                modules, code, arguments, None, dict(os.environ), (stdout, os.devnull), stdin
            )
            # In the order in which it opens them, for each waits for the other side.
            process.stdin = Path(stdin).open("wb")  # noqa: SIM115
            process.stdout = Path(stdout).open("rb")  # noqa: SIM115
        return process

    def poll(self) -> int | None:
        """Exit status, or None while it runs."""
        if self.returncode is None:
            self.returncode = _ask(self.modules, poll=self.pid)
        return self.returncode

    def wait(self, timeout: float | None = None) -> int:
        """Wait for its end."""
        deadline = None if timeout is None else time.monotonic() + timeout
        pause_s = 0.002
        while self.poll() is None:
            if deadline is not None and time.monotonic() > deadline:
                raise subprocess.TimeoutExpired("a forked program", timeout or 0)
            time.sleep(pause_s)
            pause_s = min(1.5 * pause_s, 0.05)
        assert self.returncode is not None
        return self.returncode

    def send_signal(self, number: int) -> None:
        """Send it a signal, unless it has ended."""
        if self.poll() is None:
            with contextlib.suppress(ProcessLookupError):
                os.kill(self.pid, number)

    def terminate(self) -> None:
        """Ask it to end."""
        self.send_signal(signal.SIGTERM)

    def kill(self) -> None:
        """End it."""
        self.send_signal(signal.SIGKILL)


def _ask(modules: tuple[str, ...], **request: Any) -> Any:
    """Ask the process that has imported these modules, which is started by the first who asks."""
    if FOLDER not in os.environ:
        os.environ[FOLDER] = tempfile.mkdtemp(prefix="nbprof-programs-")
        os.environ[SESSION] = str(os.getpid())
    # A short name, for the address of a socket has at most about 100 bytes.
    address = Path(os.environ[FOLDER], hashlib.sha256("+".join(modules).encode()).hexdigest()[:16])
    with contextlib.suppress(FileExistsError):
        address.with_suffix(".started").touch(exist_ok=False)
        _start(modules, address)
    with socket.socket(socket.AF_UNIX) as connection:
        connection.settimeout(LIMIT_S)
        _connect(connection, address)
        connection.sendall(json.dumps(request).encode() + b"\n")
        with connection.makefile("rb") as answer:
            return json.loads(answer.readline())


def _start(modules: tuple[str, ...], address: Path) -> None:
    # One thread of OpenMP: several programs run beside each other, and its threads spin while they
    # wait.
    environment = {
        **os.environ,
        # What it reads to warm up must not go to the cache of the test that started it.
        "NBPROF_CACHE": "0",
        "PYTHONPATH": str(ROOT),
        "TF_CPP_MIN_LOG_LEVEL": "3",
        "OMP_NUM_THREADS": "1",
    }
    command = [sys.executable, "-m", "tests.support.programs", str(address), *modules]
    with address.with_suffix(".log").open("wb") as log:
        subprocess.Popen(
            command,
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
            env=environment,
            start_new_session=True,
        )


def _connect(connection: socket.socket, address: Path) -> None:
    deadline = time.monotonic() + LIMIT_S
    while True:
        try:
            connection.connect(str(address))
        except (FileNotFoundError, ConnectionRefusedError):
            # It is being started, perhaps by another worker.
            assert time.monotonic() < deadline, address.with_suffix(".log").read_text()
            time.sleep(0.01)
        else:
            return


class _Server:
    """Forks a process for each request, until the test session is over."""

    def __init__(self, address: str, modules: list[str]) -> None:
        self.statuses: dict[int, int | None] = {}
        self.listening = socket.socket(socket.AF_UNIX)
        self.listening.bind(address)
        self.listening.listen(64)
        for module in modules:
            importlib.import_module(module)
        if CONVERTER not in modules:
            _warm_up(modules)
        # Forked processes share what the collector does not touch.
        gc.collect()
        gc.freeze()

    def serve(self) -> dict[str, Any]:
        """Answer requests; in each forked process, give its request."""
        while self._in_session():
            if not select.select([self.listening], [], [], 1.0)[0]:
                continue
            connection, _ = self.listening.accept()
            with connection, connection.makefile("rwb") as stream:
                request = json.loads(stream.readline())
                if "poll" in request:
                    answer = self._status(request["poll"])
                else:
                    answer = os.fork()
                    if not answer:
                        self.listening.close()
                        return request
                    # Before the answer, for a kernel is interrupted by its group.
                    os.setpgid(answer, answer)
                    self.statuses[answer] = None
                stream.write(json.dumps(answer).encode() + b"\n")
        os._exit(0)

    def _in_session(self) -> bool:
        try:
            os.kill(int(os.environ[SESSION]), 0)
        except ProcessLookupError:
            return False
        return True

    def _status(self, pid: int) -> int | None:
        if self.statuses[pid] is None:
            ended, status = os.waitpid(pid, os.WNOHANG)
            if ended:
                self.statuses[pid] = os.waitstatus_to_exitcode(status)
        return self.statuses[pid]


def _warm_up(modules: list[str]) -> None:
    """Import what nbprof imports to record, to read and to draw: a second in each program."""
    import nbprof
    import nbprof.capture.session
    import nbprof.notebook

    for path in ("xspace/jax_loop.xplane.pb", "kineto/cpu_train.pt.trace.json.gz"):
        nbprof.load(ROOT / "tests" / "data" / path).mimebundle()
    if "torch" in modules:
        # PyTorch itself imports it with the first optimizer.
        import sympy  # noqa: F401


def _become(request: dict[str, Any]) -> None:
    """Run a program in this process, as `python -c` would."""
    os.dup2(os.open(request["stdin"], os.O_RDONLY), 0)
    sys.stdin = os.fdopen(0)
    for descriptor, path in enumerate(request["outputs"], 1):
        os.dup2(os.open(path, os.O_WRONLY | os.O_APPEND), descriptor)
    os.environ.clear()
    os.environ.update(request["environment"])
    os.chdir(request["cwd"])
    sys.argv = ["-c", *request["arguments"]]
    sys.path[0] = ""
    program = types.ModuleType("__main__")
    sys.modules["__main__"] = program
    exec(compile(request["code"], "<string>", "exec"), vars(program))


if __name__ == "__main__":
    server = _Server(sys.argv[1], sys.argv[2:])
    _become(server.serve())
