"""Fuzzing of everything that opens files: each damaged input ends in a profile with a receipt, or
in `ReadError`, in bounded time and memory.

    python -m tests.fuzz.readers --seconds 600                       # all formats, in turn
    python -m tests.fuzz.readers xspace --seed 7 --count 100000
    python -m tests.fuzz.readers msprof --seed 7 --first 4711 --count 1 --look 1     # one input again

An input follows from the format, the seed and its number alone. Inputs are opened in a process of
its own, which is stopped where one takes too long. Of every `--look`-th profile all is computed
that a person can see; files that failed are kept in a folder, each with what makes it again.
"""

from __future__ import annotations

import contextlib
import json
import mmap
import os
import resource
import shutil
import signal
import struct
import sys
import tempfile
import time
import traceback
import warnings
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from multiprocessing import get_context
from pathlib import Path
from typing import Any

from tests.fuzz import command, formats

READ_S, LOOK_S = 4.0, 20.0
"""The most seconds of CPU time that reading an input may take, and that all that can be seen of it
may.
"""
MOST_BYTES = 400 << 20
"""The most that an input may add to the memory of the process at any moment; inputs have at most
some 300 kB.
"""
ADDRESS_SPACE = 6 << 30
_KEPT = 3
_LONGEST = 2000


@dataclass
class Outcome:
    """What became of one input: `error` (of ours), `profile`, or the find that it is."""

    word: str
    looked: bool = False
    find: str = ""
    details: str = ""
    seconds: float = 0.0
    bytes: int = 0


def one(form: str, seed: int, number: int, folder: Path, *, look: bool) -> Outcome:
    """Opens one input in a folder, which is empty again afterwards."""
    from nbprof.core.errors import ReadError
    from nbprof.profiles.load import read
    from tests.fuzz import everything

    files = formats.draw(form, seed, number)
    before, began, out = _forget_peak(), time.process_time(), Outcome("profile")
    try:
        _write(folder, files)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            try:
                profile = read(folder / next(iter(files)) if len(files) == 1 else folder)
            except ReadError as error:
                out.word, said = "error", error
            else:
                said = None
                everything.read_part(profile)
                out.seconds = time.process_time() - began
                if look:
                    out.looked = True
                    everything.compute(profile)
            # It names the file, in a sentence.
            assert said is None or (said.path and len(said.reason) < _LONGEST), repr(said)
    except Exception as error:
        out.find = _where(error)
        out.details = traceback.format_exc()
    finally:
        shutil.rmtree(folder)
    out.seconds = out.seconds or time.process_time() - began
    out.bytes = _peak() - before
    if not out.find and out.seconds > READ_S:
        out.find = f"reading took {out.seconds:.1f} s of CPU time"
    if not out.find and out.bytes > MOST_BYTES:
        out.find = f"it took {out.bytes >> 20} MiB"
    return out


def _write(folder: Path, files: formats.Files) -> None:
    folder.mkdir()
    for name, data in files.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(data)


def _where(error: BaseException) -> str:
    """A find's name: the error, and the innermost place of ours that it came through."""
    frames = traceback.extract_tb(error.__traceback__)
    ours = [f for f in frames if "/nbprof/" in f.filename or "/tests/fuzz/" in f.filename]
    at = ours[-1] if ours else frames[-1]
    place = f"{at.filename.rpartition('/nbprof/')[2]}:{at.lineno} {at.name}"
    return f"{type(error).__name__}: {str(error)[:120]} ({place})"


def _forget_peak() -> int:
    """Makes the peak of this process's memory what it has now (Linux), and returns it."""
    with contextlib.suppress(OSError):
        Path("/proc/self/clear_refs").write_text("5")
    return _peak()


def _peak() -> int:
    try:
        line = next(
            line
            for line in Path("/proc/self/status").read_text().splitlines()
            if line.startswith("VmHWM")
        )
        return int(line.split()[1]) << 10
    except (OSError, StopIteration):
        return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss << 10


_STATE = struct.Struct("qd")
"""Of the worker: the input that it is at, and how much CPU time it had used when it began."""


def _work(form: str, seed: int, numbers: range, look: int, state: mmap.mmap, results: Any) -> None:
    resource.setrlimit(resource.RLIMIT_AS, (ADDRESS_SPACE, ADDRESS_SPACE))
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    os.environ["NBPROF_CACHE"] = "0"
    with tempfile.TemporaryDirectory(prefix="nbprof-fuzz-") as folder:
        # What is imported on the way is no input's.
        one(form, seed, 0, Path(folder) / "input", look=True)
        for number in numbers:
            state[: _STATE.size] = _STATE.pack(number, time.process_time())
            out = one(
                form, seed, number, Path(folder) / "input", look=bool(look) and number % look == 0
            )
            results.send((number, out))
    results.send(None)


@dataclass
class Tally:
    """What came of the inputs of one format."""

    form: str
    inputs: int = 0
    words: Counter[str] = field(default_factory=Counter)
    looked: int = 0
    finds: Counter[str] = field(default_factory=Counter)
    slowest: float = 0.0
    largest: int = 0

    def add(self, out: Outcome) -> None:
        self.inputs += 1
        self.words[out.word] += 1
        self.looked += out.looked
        self.slowest, self.largest = max(self.slowest, out.seconds), max(self.largest, out.bytes)

    def __str__(self) -> str:
        return (
            f"{self.form}: {self.inputs:,} inputs, {self.words['profile']:,} profiles ({self.looked:,} looked at as a whole), "
            f"{self.words['error']:,} errors, {sum(self.finds.values()):,} finds; at most {self.slowest:.2f} s and {self.largest >> 20} MiB"
        )


def run(
    form: str, seed: int, numbers: range, *, look: int, keep: Path | None, until: float
) -> Tally:
    """Opens inputs until they have all been, or the time is over."""
    tally, at = Tally(form), numbers.start
    while at < numbers.stop and time.monotonic() < until:
        for number, out in _results(form, seed, range(at, numbers.stop), look, until):
            at = number + 1
            tally.add(out)
            if out.find:
                tally.finds[out.find] += 1
                if tally.finds[out.find] <= _KEPT:
                    _tell(form, seed, number, out, keep)
    return tally


def _results(
    form: str, seed: int, numbers: range, look: int, until: float
) -> Iterator[tuple[int, Outcome]]:
    """Outcomes of one worker: it ends with its numbers or the time, or with an input that takes too
    long or ends the process.
    """
    state = mmap.mmap(-1, _STATE.size)
    state[: _STATE.size] = _STATE.pack(-1, 0.0)
    context = get_context("fork")
    results, sender = context.Pipe(duplex=False)
    worker = context.Process(
        target=_work, args=(form, seed, numbers, look, state, sender), daemon=True
    )
    worker.start()
    sender.close()
    try:
        while time.monotonic() < until:
            if results.poll(0.5):
                try:
                    got = results.recv()
                except EOFError:
                    got = None
                    worker.join()
                    if worker.exitcode:
                        number, _ = _STATE.unpack(state[: _STATE.size])
                        yield (
                            number,
                            Outcome("profile", find=f"the process ended with {worker.exitcode}"),
                        )
                if got is None:
                    return
                yield got
                continue
            number, began = _STATE.unpack(state[: _STATE.size])
            used = _cpu(worker.pid) - began
            if number >= 0 and used > READ_S + LOOK_S:
                yield (
                    number,
                    Outcome(
                        "profile",
                        find=f"no end after {READ_S + LOOK_S:.0f} s of CPU time",
                        seconds=used,
                    ),
                )
                return
    finally:
        worker.kill()
        worker.join()
        results.close()


def _cpu(pid: int | None) -> float:
    try:
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return 0.0
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def _tell(form: str, seed: int, number: int, out: Outcome, keep: Path | None) -> None:
    again = f"python -m tests.fuzz.readers {form} --seed {seed} --first {number} --count 1 --look 1"
    print(f"FIND {form}: {out.find}\n  again: {again}", flush=True)
    if keep is not None:
        folder = keep / f"{form}-{seed}-{number}"
        shutil.rmtree(folder, ignore_errors=True)
        folder.parent.mkdir(parents=True, exist_ok=True)
        _write(folder, formats.draw(form, seed, number))
        (folder.parent / f"{folder.name}.txt").write_text(f"{out.find}\n{again}\n\n{out.details}")
        print(f"  kept: {folder}", flush=True)


def main(arguments: list[str] | None = None) -> int:
    """Runs the formats that are asked for; 1 where one of them has a find."""
    options = command.parser(__doc__, formats.FORMATS)
    options.add_argument(
        "--look",
        type=int,
        default=20,
        help="compute all that can be seen of every N-th profile; 0 for none",
    )
    options.add_argument("--keep", type=Path, help="folder for the inputs that failed")
    chosen, numbers = command.chosen(options, formats.FORMATS, arguments)
    names = chosen.formats
    tallies = []
    for place, name in enumerate(names):
        left = chosen.seconds - sum(t for _, t in tallies)
        began = time.monotonic()
        tally = run(
            name,
            chosen.seed,
            numbers,
            look=chosen.look,
            keep=chosen.keep,
            until=began + left / (len(names) - place),
        )
        tallies.append((tally, time.monotonic() - began))
        print(f"seed {chosen.seed}, from {chosen.first}: {tally}", flush=True)
        for find, count in tally.finds.most_common():
            print(f"  {count:,} times {find}", flush=True)
    print(
        json.dumps(
            {
                tally.form: {"inputs": tally.inputs, "finds": sum(tally.finds.values())}
                for tally, _ in tallies
            }
        ),
        flush=True,
    )
    return int(any(tally.finds for tally, _ in tallies))


if __name__ == "__main__":
    sys.exit(main())
