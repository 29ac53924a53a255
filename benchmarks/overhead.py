"""What does %%nbprof cost on top of the framework's own profiler, and what while it only is loaded?

The same cell runs in turns, in changing order: bare, under the framework's own profiler, in the
recording that ``%%nbprof`` uses, step markers included, and in that with the live strip, whose
messages are packed and sent as a kernel does it. Before and after that the cell runs in two shells
of IPython in turns, one of them with the extension loaded, nothing recorded.

    python benchmarks/overhead.py [--framework tensorflow|torch|jax|all] [--step-ms 5] [--turns 15]
    [--turn-s 1]
                                  [--only recorded|cell|own|idle|sampling] [--minutes 2.2]

``--step-ms`` is how long a step of the bare cell is to take: the work in it is fitted to that
first, by its CPU time. XProf's and PyTorch's recorders cost more the more events a step has, so a
step of many small ops (``--step-ms 5``) shows most. The loop of JAX has no marks: its steps are
found in the recording, after the time that is measured.

Printed are ratios of turns that follow each other: their median, the interval that holds the true
median in 95 of 100 such series (by order statistics: nothing is assumed of the scatter), and
whether that is below the bound, above it, or too wide to tell. Of each turn there are:

    step, low quarter   the 25 % quantile of the times of its steps: what a step costs where nothing disturbs it
    loop, CPU           CPU time of the process in the loop, all threads
    loop, wall          the time of the loop
    cell, CPU / wall    the same with start, stop and the writing of files
    CPU, low quarter    the 25 % quantile of all turns of one way by that of the other

What disturbs a turn only ever adds to its CPU time (caches that others use, page faults, the
writing of files), so the low quarter of many turns scatters least; its interval is that of 4,000
bootstrap series, in which turns are drawn as pairs.

``--only cell`` settles what ``%%nbprof`` adds to the framework's profiler. It takes as many turns
of short cells as the time allows: the framework's profiler, the same again as a control, and nbprof
with its strip, in random order. A cell is a fixed part and so many steps; what is added to both is
put together for a cell of 1 s and of 10 s. Turns are drawn whole for the interval, and that of the
control says what the machine lets be resolved. All frameworks, in under 8 minutes: ``python
benchmarks/overhead.py --only cell --framework all``.

Where the machine is too busy for any of these, what nbprof's own code takes is left: its CPU time
at the begin and at the end, less that inside the framework's own calls, and that of a step, over
the cell under the framework's profiler. (Of PyTorch it holds the packing of the file, which is in
the framework's own call otherwise.)

``--only sampling`` settles what the sampler of Python stacks adds, without a framework: to a loop
that holds the GIL, one that releases it and one of tiny steps. Each takes turns without the
sampler, with it, and with one that samples as fast as it can. What the last one adds is large
enough to be resolved: by sample, and so by the rate of the usual sampler, it gives what that one
costs.

Other load on the machine changes CPU times and low quarters little, and makes wall times scatter.
For the same reason everything runs on one core with one thread of the framework, unless
``--all-cores`` is given.
"""

from __future__ import annotations

import argparse
import atexit
import gc
import math
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
import threading
import time

import numpy as np

if __name__ == "__main__" and "--all-cores" not in sys.argv:
    # Before a framework is imported: its pools have as many threads as there are cores then.
    if hasattr(os, "sched_setaffinity"):
        os.sched_setaffinity(0, {max(os.sched_getaffinity(0))})
    for name in (
        "OMP_NUM_THREADS",
        "MKL_NUM_THREADS",
        "TF_NUM_INTRAOP_THREADS",
        "TF_NUM_INTEROP_THREADS",
    ):
        os.environ[name] = "1"
    os.environ["XLA_FLAGS"] = "--xla_cpu_multi_thread_eigen=false intra_op_parallelism_threads=1"
os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")

from nbprof.capture import python_samples
from nbprof.capture.options import Options
from nbprof.capture.python_samples import PythonSampler
from nbprof.capture.session import Session

# Steps are fitted by their CPU time: on one core with one thread that is what they take where
# nothing else runs.
FITTED = 0 if "--all-cores" in sys.argv else 1
SHORT = 16
"""Steps of a short cell."""


class Timer:
    """Times a loop: call it after each step."""

    def __init__(self):
        self.ends = []
        self.spent = []
        self.cpu = time.process_time()
        self.began = time.perf_counter()

    def __call__(self):
        self.ends.append(time.perf_counter())
        self.spent.append(time.process_time())

    def done(self):
        """Seconds of the loop, CPU seconds of it, the low quarter of its steps, and the median of
        their CPU seconds.
        """
        wall, cpu = time.perf_counter() - self.began, time.process_time() - self.cpu
        # The first step begins what the others find ready.
        between = sorted(b - a for a, b in zip(self.ends, self.ends[1:], strict=False))
        return wall, cpu, between[len(between) // 4], float(np.median(np.diff(self.spent)))


class KerasCell:
    """A small CNN; its pictures are as many as make a step of the length that was asked for."""

    backend = "tensorflow"

    def __init__(self, step_ms: float, steps: int) -> None:
        import keras
        import tensorflow as tf

        self._tf = tf
        rng = np.random.default_rng(0)

        def data(batch, batches):
            images = rng.random((min(batch * batches, 4096), 28, 28, 1), dtype=np.float32)
            labels = rng.integers(0, 10, len(images))
            return (
                tf.data.Dataset.from_tensor_slices((images, labels))
                .repeat()
                .batch(batch)
                .take(batches)
                .prefetch(2)
            )

        layers = keras.layers
        self.model = keras.Sequential(
            [
                layers.Input((28, 28, 1)),
                layers.Conv2D(16, 3, activation="relu"),
                layers.MaxPooling2D(),
                layers.Flatten(),
                layers.Dense(10, activation="softmax"),
            ]
        )
        self.model.compile("adam", "sparse_categorical_crossentropy")

        class Steps(keras.callbacks.Callback):
            def on_train_batch_end(self, batch, logs=None):  # noqa: ARG002
                self.timer()

        self.callback = Steps()

        def length(batch):
            self.data = data(batch, 20)
            self.loop()
            return 50 * self.loop()[FITTED]

        batch = fitted(length, step_ms, 8)
        self._data = lambda steps: data(batch, steps)
        self.turns_of(steps)
        self.size = f"{batch} pictures a batch"

    def turns_of(self, steps: int) -> None:
        """Have loops of so many steps."""
        self.steps = steps
        self.data = self._data(steps)

    def loop(self):
        self.callback.timer = timer = Timer()
        self.model.fit(self.data, verbose=0, callbacks=[self.callback])
        return timer.done()

    def profiled(self, folder: str):
        experimental = self._tf.profiler.experimental
        experimental.start(folder, options=experimental.ProfilerOptions(host_tracer_level=2))
        took = self.loop()
        experimental.stop()
        return took


class LayersCell:
    """Layers of 256, as many as make a step of the length that was asked for."""

    def _fit(self, step_ms: float, steps: int) -> None:
        def length(layers):
            self._build(layers)
            self.loop()
            return 50 * self.loop()[FITTED]

        self.steps = 20
        layers = fitted(length, step_ms, 4)
        self._build(layers)
        self.turns_of(steps)
        self.size = f"{layers} layers"

    def turns_of(self, steps: int) -> None:
        """Have loops of so many steps."""
        self.steps = steps


class TorchCell(LayersCell):
    """Many small ops, as PyTorch's models have."""

    backend = "torch"

    def __init__(self, step_ms: float, steps: int) -> None:
        import torch

        if "--all-cores" not in sys.argv:
            torch.set_num_threads(1)
        self._torch = torch
        self._fit(step_ms, steps)

    def _build(self, layers: int) -> None:
        torch = self._torch
        nn = torch.nn
        self.model = nn.Sequential(
            *[nn.Sequential(nn.Linear(256, 256), nn.ReLU()) for _ in range(layers)]
        )
        self.optimizer = torch.optim.SGD(self.model.parameters(), lr=1e-3)
        self.batch = torch.ones(32, 256)

    def loop(self, after=lambda: None):
        timer = Timer()
        for _ in range(self.steps):
            self.optimizer.zero_grad()
            self.model(self.batch).square().mean().backward()
            self.optimizer.step()
            after()
            timer()
        return timer.done()

    def profiled(self, folder: str):
        # With step marks, as nbprof's recording has them.
        with self._torch.profiler.profile(record_shapes=True, profile_memory=True) as profiler:
            took = self.loop(profiler.step)
        profiler.export_chrome_trace(f"{folder}/trace.json.gz")
        return took


class JaxCell(LayersCell):
    """A compiled step."""

    backend = "jax"

    def __init__(self, step_ms: float, steps: int) -> None:
        import jax

        self._jax = jax
        self._fit(step_ms, steps)

    def _build(self, layers: int) -> None:
        jnp = self._jax.numpy

        def loss(weights, x):
            for w in weights:
                x = jnp.tanh(x @ w)
            return jnp.mean(x**2)

        def train_step(weights, x):
            return [
                w - 1e-3 * g for w, g in zip(weights, self._jax.grad(loss)(weights, x), strict=True)
            ]

        self.train_step = self._jax.jit(train_step)
        self.weights = [jnp.eye(256)] * layers
        self.batch = jnp.ones((32, 256))

    def loop(self):
        timer, weights = Timer(), self.weights
        for _ in range(self.steps):
            # Else steps would be timed by how fast they are asked for.
            weights = self._jax.block_until_ready(self.train_step(weights, self.batch))
            timer()
        return timer.done()

    def profiled(self, folder: str):
        options = self._jax.profiler.ProfileOptions()
        options.host_tracer_level, options.python_tracer_level = 2, 0
        self._jax.profiler.start_trace(folder, profiler_options=options)
        took = self.loop()
        self._jax.profiler.stop_trace()
        return took


CELLS = {"tensorflow": KerasCell, "torch": TorchCell, "jax": JaxCell}


def fitted(length, wanted_ms: float, least: int) -> int:
    """The size of the work with which a step takes about as long as wanted; `length` gives ms a
    step for a size.
    """
    size = least
    for _ in range(6):
        took = length(size)
        if abs(took / wanted_ms - 1) < 0.1:
            break
        size = max(1, round(size * wanted_ms / took))
    return size


def bare(cell, _folder):
    return cell.loop()


def framework(cell, folder):
    return cell.profiled(folder)


def nbprof(cell, folder):
    session = Session(
        Options(backend=cell.backend, logdir=folder), on_step=lambda _: time.monotonic()
    ).start()
    took = cell.loop()
    recording = session.stop()
    assert recording is not None, session.failure
    assert (
        recording.info.steps_marked
        == recording.info.steps_seen
        == (0 if cell.backend == "jax" else cell.steps)
    )
    return took


class Page:
    """Where a strip is shown: packs and signs its messages as a kernel does, and sends them to
    nobody.
    """

    def __init__(self):
        import zmq
        from jupyter_client.session import Session as Messages

        self.session = Messages(key=b"key")
        self.socket = zmq.Context.instance().socket(zmq.PUB)
        self.socket.bind_to_random_port("tcp://127.0.0.1")
        atexit.register(self.socket.close)

    def draw(self, data):
        content = {"data": data, "metadata": {}, "transient": {"display_id": "strip"}}
        self.session.send(
            self.socket, "update_display_data", content, parent={}, ident=b"display_data"
        )


def strip(cell, folder):
    from nbprof.notebook.live_status import Strip

    shown = []
    options = Options(backend=cell.backend, logdir=folder)
    session = Session(options, on_step=lambda _: shown and shown[0].stepped()).start()
    shown.append(Strip(session, page))
    shown[0].begin()
    begin = time.perf_counter()
    took = cell.loop()
    shown[0].end()
    strip_cpu.append(shown[0].cpu_s / (time.perf_counter() - begin))
    recording = session.stop()
    assert recording is not None, session.failure
    assert (
        recording.info.steps_marked
        == recording.info.steps_seen
        == (0 if cell.backend == "jax" else cell.steps)
    )
    return took


def of_framework(cell):
    """The framework's own calls that begin, end and write a recording: owners and names."""
    if cell.backend == "tensorflow":
        import tensorflow as tf

        return [(tf.profiler.experimental, "start"), (tf.profiler.experimental, "stop")]
    if cell.backend == "jax":
        import jax

        return [(jax.profiler, "start_trace"), (jax.profiler, "stop_trace")]
    import torch

    return [(torch.profiler.profile, name) for name in ("start", "stop", "export_chrome_trace")]


def own(cell, folder):
    """CPU seconds of nbprof's own code: at the begin, at the end, and of one step."""
    inside = [0.0]

    def timing(function):
        def timed(*args, **kwargs):
            begin = time.process_time()
            try:
                return function(*args, **kwargs)
            finally:
                inside[0] += time.process_time() - begin

        return timed

    def spent(act):
        inside[0], begin = 0.0, time.process_time()
        result = act()
        return result, time.process_time() - begin - inside[0]

    calls = [(owner, name, getattr(owner, name)) for owner, name in of_framework(cell)]
    for owner, name, function in calls:
        setattr(owner, name, timing(function))
    try:
        session, begun = spent(
            Session(
                Options(backend=cell.backend, logdir=folder), on_step=lambda _: time.monotonic()
            ).start
        )
        cell.loop()
        _, ended = spent(session.stop)
    finally:
        for owner, name, function in calls:
            setattr(owner, name, function)
    session = Session(
        Options(backend=cell.backend, logdir=folder), on_step=lambda _: time.monotonic()
    ).start()
    count, clock = 2000, session.clock
    begin = time.process_time()
    if cell.backend == "torch":
        for _ in range(count):
            session.backend._steps.stepped(cell.optimizer)
    elif cell.backend == "tensorflow":
        clock.loop("train")
        for _ in range(count):
            clock.begin("train")
            clock.end("train", 1, "batches of Keras")
    step = (time.process_time() - begin) / count
    clock.leave()
    session.stop()
    return begun, ended, step


def of_own_code(cell, turns, whole):
    """Print what nbprof's own code takes of a cell of `whole` CPU seconds."""
    parts = []
    for _ in range(turns + 1):
        folder = tempfile.mkdtemp()
        parts.append(own(cell, folder))
        shutil.rmtree(folder)
    # The first time brings imports.
    parts = parts[1:]
    begun, ended, step = (statistics.median(part[i] for part in parts) for i in range(3))
    shares = [(a + b + cell.steps * c) / whole for a, b, c in parts]
    print(
        f"nbprof's own code, CPU: {1e3 * begun:.1f} ms at the begin, {1e6 * step:.1f} us a step,"
        f" {1e3 * ended:.1f} ms at the end"
    )
    told("of the cell, 1 + ", [1 + share for share in shares], 0.02)


strip_cpu: list[float] = []
page = Page()


def timed(way, cell):
    """Of one turn: see `FIGURES`."""
    folder = tempfile.mkdtemp()
    try:
        cpu, begin = time.process_time(), time.perf_counter()
        loop, loop_cpu, low, step = way(cell, folder)
        return low, loop_cpu, loop, time.process_time() - cpu, time.perf_counter() - begin, step
    finally:
        shutil.rmtree(folder)


FIGURES = ("step, low quarter", "loop, CPU", "loop, wall", "cell, CPU", "cell, wall")


def interval(values):
    """The median, and the order statistics that hold the true one in 95 of 100 series."""
    ordered, n = sorted(values), len(values)
    below, k = 0.0, 0
    while k < n // 2 and below + math.comb(n, k) / 2**n <= 0.025:
        below += math.comb(n, k) / 2**n
        k += 1
    if not k:
        return statistics.median(ordered), -math.inf, math.inf
    at = k - 1
    return statistics.median(ordered), ordered[at], ordered[n - 1 - at]


def low_quarters(upper, lower, series=4000):
    """The ratio of the 25 % quantiles of two ways, and the interval of its bootstrap series; both
    are given turn by turn.
    """
    upper, lower = np.array(upper), np.array(lower)
    drawn = np.random.default_rng(0).integers(len(upper), size=(series, len(upper)))
    ratios = np.quantile(upper[drawn], 0.25, axis=1) / np.quantile(lower[drawn], 0.25, axis=1)
    return np.quantile(upper, 0.25) / np.quantile(lower, 0.25), *np.quantile(ratios, (0.025, 0.975))


def told(label, ratios, bound):
    said(label, *interval(ratios), bound)


def said(label, middle, low, high, bound):
    verdict = (
        f"below {bound:.3%}"
        if high <= 1 + bound
        else f"ABOVE {bound:.3%}"
        if low > 1 + bound
        else "not resolved"
    )
    print(f"  {label:<22} {middle:8.4f}  [{low:.4f}, {high:.4f}]  {verdict}")


def compare(times, upper, lower, title, bound):
    """Print each figure of one way by that of another, turn by turn."""
    print(f"{title}:")
    for at, label in enumerate(FIGURES):
        told(label, [a[at] / b[at] for a, b in zip(times[upper], times[lower], strict=True)], bound)
    for at, label in ((1, "loop, CPU, low quarter"), (3, "cell, CPU, low quarter")):
        said(
            label,
            *low_quarters(*([turn[at] for turn in times[way]] for way in (upper, lower))),
            bound,
        )


def take_turns(cell, ways, turns):
    """The figures of each way, by turn."""
    for way in ways:
        timed(way, cell)
    times = {way: [] for way in ways}
    strip_cpu.clear()
    for turn in range(turns):
        # Each way is first, second and last equally often.
        order = [ways[(i + turn) % len(ways)] for i in range(len(ways))]
        for way in order if turn % 2 else reversed(order):
            times[way].append(timed(way, cell))
    return times


def again(cell, folder):
    """The framework's profiler as a control: what it differs by from itself is noise."""
    return framework(cell, folder)


def middle(values):
    """The mean of the middle three fifths, along the last axis."""
    ordered = np.sort(values, axis=-1)
    cut = ordered.shape[-1] // 5
    return ordered[..., cut : ordered.shape[-1] - cut].mean(axis=-1)


def short_cells(cell, minutes, series=4000):
    """What nbprof adds to a cell, of many short cells in turn, as long as there is time.

    The CPU time of a cell is that of its steps, as many times the median one, and a fixed part for
    begin and end. Both are compared with the mean of the two cells of the framework's profiler in
    the same turn, and put together for longer cells.
    """
    ways = (framework, strip, again)
    for way in ways:
        timed(way, cell)
    rng, end = np.random.default_rng(0), time.monotonic() + 60 * minutes
    turns = []
    while time.monotonic() < end:
        taken = {}
        for at in rng.permutation(len(ways)):
            # Else one way collects the garbage of another.
            gc.collect()
            taken[ways[at]] = timed(ways[at], cell)
        turns.append([(taken[way][3] - cell.steps * taken[way][5], taken[way][5]) for way in ways])
    # By way: fixed part and step of each turn.
    first, ours, second = np.array(turns).transpose(1, 2, 0)
    drawn = rng.integers(len(turns), size=(series, len(turns)))
    print(
        f"CPU time that nbprof adds to the framework's profiler, {len(turns)} turns of {cell.steps}"
        " steps; mean of the middle [95 %]:"
    )

    def added(more, base, seconds, rows):
        """Of a cell whose steps take so long: what is added, by what there is."""
        fixed, step = (middle(more[i][rows]) for i in range(2))
        count = seconds / middle(base[1][rows])
        return (fixed + count * step) / (middle(base[0][rows]) + seconds)

    def bounds(of):
        return of(np.arange(len(turns))), *np.quantile(of(drawn), (0.025, 0.975))

    base = (first + second) / 2
    for i, label, unit in ((0, "begin and end, ms", 1e3), (1, "a step, us", 1e6)):
        least = [unit * value for value in bounds(lambda rows, i=i: middle((ours - base)[i][rows]))]
        print(
            f"  {label:<22} {least[0]:8.2f}  [{least[1]:.2f}, {least[2]:.2f}] of"
            f" {unit * middle(base[i]):.2f}"
        )
    for seconds in (1, 10):
        for label, more, less in (
            ("nbprof", ours - base, base),
            ("control", second - first, first),
        ):
            values = (
                1 + value
                for value in bounds(lambda rows, m=more, b=less, s=seconds: added(m, b, s, rows))
            )
            said(f"cell of {seconds} s, {label}", *values, 0.02)


def recorded(cell, turns):
    times = take_turns(cell, (bare, framework, nbprof, strip), turns)
    compare(times, nbprof, framework, "nbprof / framework profiler", 0.02)
    compare(times, framework, bare, "framework profiler / bare", 0.02)
    compare(times, strip, nbprof, "nbprof with its strip / without", 0.005)
    of_own_code(cell, turns, statistics.median(t[3] for t in times[framework]))
    print(
        "cell, wall, median seconds: "
        + ", ".join(f"{w.__name__} {statistics.median(t[4] for t in times[w]):.3f}" for w in times)
    )
    print(
        f"the thread of the strip: median {statistics.median(strip_cpu):.3%} of a core, max"
        f" {max(strip_cpu):.3%}"
    )


class Shells:
    """Two shells of IPython, one of them with nbprof's extension; nothing is recorded in either."""

    def __init__(self, cell):
        from IPython.core.interactiveshell import InteractiveShell

        self.plain, self.loaded = InteractiveShell(), InteractiveShell()
        self.loaded.run_line_magic("load_ext", "nbprof")
        self.results = []
        for shell in (self.plain, self.loaded):
            shell.user_ns.update(loop=cell.loop, results=self.results)

        def in_plain_shell(_cell, _folder):
            return self.run(self.plain)

        def in_loaded_shell(_cell, _folder):
            return self.run(self.loaded)

        self.ways = (in_plain_shell, in_loaded_shell)

    def run(self, shell):
        shell.run_cell("results[:] = [loop()]", store_history=True).raise_error()
        return self.results[0]

    def of_a_cell(self, count=2000):
        """CPU time that the loaded shell adds to a cell, in s: of empty cells in turns."""
        more = []
        for _ in range(21):
            took = []
            for shell in (self.plain, self.loaded):
                begin = time.process_time()
                for _ in range(count // 20):
                    shell.run_cell("0", store_history=True, silent=True)
                took.append((time.process_time() - begin) / (count // 20))
            more.append(took[1] - took[0])
        return interval(more)


def of_steps_left_in(count=20000):
    """CPU time that `nbprof.steps` takes a round while nothing is recorded, in s."""
    import nbprof as package

    more = []
    for _ in range(21):
        took = []
        for rounds in (range(count), package.steps(range(count))):
            begin = time.process_time()
            for _ in rounds:
                pass
            took.append((time.process_time() - begin) / count)
        more.append(took[1] - took[0])
    return interval(more)


def holds_the_gil(count):
    total = 0
    for i in range(20_000 * count):
        total += i * i


def releases_the_gil(count):
    array = np.ones((256, 256))
    for _ in range(count):
        array @ array


def tiny_steps(count):
    array = np.ones(8)
    for _ in range(1000 * count):
        array = array * 1.0 + 0.0


def sampled_turn(loop, count, interval_s, share):
    """Wall and CPU seconds of a loop, samples that were taken, none without an interval, and CPU
    seconds of the thread that took them.
    """
    usual = python_samples.INTERVAL_S, python_samples.SHARE
    python_samples.INTERVAL_S, python_samples.SHARE = interval_s, share
    sampler, own = PythonSampler(), 0.0
    try:
        if interval_s:
            sampler.start()
        cpu, wall = time.process_time(), time.perf_counter()
        loop(count)
        taken = time.perf_counter() - wall, time.process_time() - cpu
        if sampler._sampling is not None and hasattr(time, "pthread_getcpuclockid"):
            own = time.clock_gettime(time.pthread_getcpuclockid(sampler._sampling.ident))
    finally:
        sampler.stop()
        python_samples.INTERVAL_S, python_samples.SHARE = usual
    return (*taken, (len(sampler._at) - 1) * sampler._each, own)


def sampling(turns, turn_s):
    """What the sampler of Python stacks adds to loops of three kinds."""
    usual = python_samples.INTERVAL_S, python_samples.SHARE
    ways = ((0.0, 1.0), usual, (0.001, 100.0))
    rng = np.random.default_rng(0)
    print(f"sampler of Python stacks: {turns} turns of {turn_s:g} s; median [95 %]")
    for loop in (holds_the_gil, releases_the_gil, tiny_steps):
        count = fitted(
            lambda size, loop=loop: 1e3 * sampled_turn(loop, size, 0.0, 1.0)[1], 1e3 * turn_s, 10
        )
        taken = {way: [] for way in ways}
        for _ in range(turns):
            for at in rng.permutation(len(ways)):
                gc.collect()
                taken[ways[at]].append(sampled_turn(loop, count, *ways[at]))
        off, on, fast = (np.array(taken[way]) for way in ways)
        rate = float(np.median(on[:, 2] / on[:, 0]))
        print(f"{loop.__name__.replace('_', ' ')}: {rate:.0f} samples a second")
        told("CPU of its thread", list(1 + on[:, 3] / on[:, 0]), 0.005)
        for at, label in ((1, "CPU"), (0, "wall")):
            told(f"{label}, with / without", list(on[:, at] / off[:, at]), 0.005)
            cost = (fast[:, at] - off[:, at]) / fast[:, 2]
            middle_cost, low, high = interval(list(1e6 * cost))
            print(f"  {label}, a sample: {middle_cost:.0f} us [{low:.0f}, {high:.0f}]")
            # A second of the loop has so many samples.
            said(
                f"{label}, by sample",
                *(1 + rate * each / 1e6 for each in (middle_cost, low, high)),
                0.005,
            )


def idle(cell, turns, step_ms, when):
    shells = Shells(cell)
    plain, loaded = shells.ways
    times = take_turns(cell, shells.ways, turns)
    compare(times, loaded, plain, f"nbprof loaded, nothing recorded / not loaded, {when}", 0.001)
    for label, (middle, low, high), whole in (
        ("more of an empty cell, over one second", shells.of_a_cell(), 1.0),
        (f"nbprof.steps left in the code, over {step_ms:g} ms", of_steps_left_in(), step_ms / 1e3),
    ):
        print(
            f"  CPU, {label}: {1e6 * middle:.1f} us [{1e6 * low:.1f}, {1e6 * high:.1f}],"
            f" {middle / whole:.4%} [{high / whole:.4%}]"
        )
    return times[plain]


def main():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--framework", choices=(*CELLS, "all"), default="tensorflow")
    parser.add_argument("--step-ms", type=float, default=5.0)
    parser.add_argument("--turns", type=int, default=15)
    parser.add_argument(
        "--turn-s", type=float, default=1.0, help="how long the bare loop of a turn is to take"
    )
    parser.add_argument(
        "--only", choices=("recorded", "cell", "own", "idle", "sampling"), default=None
    )
    parser.add_argument(
        "--minutes", type=float, default=2.2, help="for how long --only cell takes turns"
    )
    parser.add_argument(
        "--all-cores",
        action="store_true",
        help="all cores, and as many threads as the framework likes",
    )
    given = parser.parse_args()
    if given.only == "sampling":
        sampling(given.turns, given.turn_s)
        return
    if given.framework == "all":
        for name in CELLS:
            # The last one counts.
            subprocess.run([sys.executable, *sys.argv, "--framework", name], check=True)
        return
    steps = max(8, round(1e3 * given.turn_s / given.step_ms))
    cell = CELLS[given.framework](given.step_ms, steps)
    where = "all cores" if given.all_cores else "one core, one thread"
    print(
        f"{given.framework}: {steps} steps of {given.step_ms:g} ms ({cell.size}), {given.turns}"
        f" turns, {where}; median [95 %]"
    )
    # Turns in which nothing is recorded have less scatter to average, and a smaller bound to
    # resolve.
    if given.only == "own":
        whole = take_turns(cell, (framework,), given.turns)[framework]
        of_own_code(cell, given.turns, statistics.median(t[3] for t in whole))
        return
    if given.only == "cell":
        cell.turns_of(SHORT)
        short_cells(cell, given.minutes)
        return
    turns, few = 10 * given.turns, max(8, round(200 / given.step_ms))
    before = None
    if given.only != "recorded":
        cell.turns_of(few)
        before = idle(cell, turns, given.step_ms, "before any recording")
    cell.turns_of(steps)
    if given.only == "idle":
        timed(nbprof, cell)
    else:
        recorded(cell, given.turns)
    if before is not None:
        cell.turns_of(few)
        after = idle(cell, turns, given.step_ms, "after a recording")
        # Not in turns: a recording cannot be taken back.
        ratios = [a[0] / statistics.median(b[0] for b in before) for a in after]
        told("step, after / before", ratios, 0.001)
    print(
        "threads of nbprof left: "
        + (", ".join(t.name for t in threading.enumerate() if "nbprof" in t.name) or "none")
    )


if __name__ == "__main__":
    main()
