"""Cells of NumPy, pandas, scikit-learn and Python alone."""

from __future__ import annotations

from cells import COMPUTE, CONTENDED, OVERHEAD, PYTHON, RECORDING, Cell, add, either, loop

TIME = """
import time
from time import perf_counter
"""

NUMPY = f"""{TIME}
import numpy as np
rng = np.random.default_rng(0)
"""

PANDAS = f"""{NUMPY}
import pandas as pd
frame = pd.DataFrame({{"key": rng.integers(0, 3000, 60_000), "value": rng.normal(size=60_000),
                      "label": rng.integers(0, 50, 60_000).astype(str)}})
"""

CALLED = COMPUTE | PYTHON
"""Of a C function of a library that computes: Python calls it, and does nothing besides."""

CLEANING = """
import re

def clean(line):
    words = re.findall(r"[a-z]+", line.lower())
    return " ".join(sorted(set(words)))

def process(lines):
    return [clean(line) for line in lines]
"""

add(
    Cell(
        "numpy/QR in a loop",
        """
began = perf_counter()
for i in range(20):
    a = np.linalg.qr(a)[0] @ a
seconds = perf_counter() - began
""",
        loop(20),
        CALLED,
        (NUMPY, "a = rng.normal(size=(500, 500))"),
        named=("qr", "a = np.linalg.qr(a)[0] @ a"),
    ),
    Cell(
        "numpy/calls in a row",
        """
began = perf_counter()
total = values.sum(axis=1)
order = np.sort(values, axis=1)
rank = np.argsort(values[:, :600], axis=1)
seconds = perf_counter() - began
""",
        RECORDING,
        CALLED,
        (NUMPY, "values = rng.normal(size=(4000, 4000))"),
        named=("sort", "order = np.sort(values, axis=1)"),
    ),
    Cell(
        "numpy/small arrays in a loop",
        """
began = perf_counter()
for i in range(200_000):
    v = v * 0.5 + 1.0
seconds = perf_counter() - began
""",
        either(loop(200_000), RECORDING),
        OVERHEAD | PYTHON,
        (NUMPY, "v = rng.normal(size=8)"),
        named=("v = v * 0.5 + 1.0",),
    ),
    Cell(
        "numpy/function of an earlier cell",
        """
began = perf_counter()
spectra = [spectrum(signal) for signal in signals]
seconds = perf_counter() - began
""",
        loop(24),
        CALLED,
        (
            NUMPY,
            """
signals = rng.normal(size=(24, 600_000))
def spectrum(signal):
    return np.abs(np.fft.rfft(signal * np.hanning(len(signal))))
""",
        ),
        named=("spectrum", "spectra = [", "np.fft.rfft"),
    ),
    Cell(
        "numpy/one call",
        """
began = perf_counter()
u, s, v = np.linalg.svd(a)
seconds = perf_counter() - began
""",
        RECORDING,
        CALLED,
        (NUMPY, "a = rng.normal(size=(700, 700))"),
        named=("svd",),
    ),
    Cell(
        "numpy/pool of threads",
        """
began = perf_counter()
with ThreadPoolExecutor(2) as pool:
    sums = list(pool.map(work, range(8)))
seconds = perf_counter() - began
""",
        either(RECORDING, {"call": (8,)}),
        CALLED | CONTENDED,
        (
            NUMPY,
            """
from concurrent.futures import ThreadPoolExecutor
values = rng.normal(size=(8, 2_000_000))
def work(k):
    return np.sort(values[k]).sum()
""",
        ),
        named=("work", "sort"),
    ),
    Cell(
        "pandas/groupby and apply",
        """
began = perf_counter()
result = frame.groupby("key")["value"].apply(spread)
seconds = perf_counter() - began
""",
        either(RECORDING, {"call": (3000,)}),
        PYTHON,
        (
            PANDAS,
            """
def spread(values):
    total = 0.0
    for value in values:
        total += abs(value) ** 0.5
    return total
frame = pd.concat([frame] * 24)
""",
        ),
        named=("spread", "total += abs(value) ** 0.5"),
    ),
    Cell(
        "pandas/iterrows",
        """
total = 0.0
began = perf_counter()
for _, row in rows.iterrows():
    total += row["value"]
seconds = perf_counter() - began
""",
        either(loop(30_000), RECORDING),
        PYTHON | frozenset(("Input-bound",)),
        (PANDAS, "rows = frame.head(30_000)"),
        named=("iterrows",),
    ),
    Cell(
        "pandas/merge and sort",
        """
began = perf_counter()
joined = frame.merge(frame, on="key")
ordered = joined.sort_values("value_x")
seconds = perf_counter() - began
""",
        RECORDING,
        CALLED,
        (PANDAS,),
        named=("merge", "sort_values"),
    ),
    Cell(
        "pandas/chunks",
        """
began = perf_counter()
means = {}
for k, chunk in chunks:
    means[k] = chunk.groupby("label")["value"].agg(["mean", "std", "median"])
seconds = perf_counter() - began
""",
        loop(60),
        CALLED | OVERHEAD,
        (PANDAS, "chunks = [(k, frame.sample(40_000, random_state=k)) for k in range(60)]"),
        named=("agg", "means[k] ="),
    ),
    Cell(
        "python/two million turns",
        """
total = 0
began = perf_counter()
for i in range(2_000_000):
    total += i * i % 7
seconds = perf_counter() - began
""",
        either(loop(2_000_000), RECORDING),
        PYTHON,
        (TIME,),
        named=("total += i * i % 7", "for i in range(2_000_000):"),
    ),
    Cell(
        "python/nested loops",
        """
grid = []
began = perf_counter()
for row in range(25):
    line = []
    for column in range(100_000):
        line.append(row * column % 11)
    grid.append(line)
seconds = perf_counter() - began
""",
        loop(25, 2_500_000),
        PYTHON,
        (TIME,),
        named=("line.append(row * column % 11)", "for column in range(100_000):"),
    ),
    Cell(
        "python/recursion",
        """
began = perf_counter()
value = fibonacci(29)
seconds = perf_counter() - began
""",
        RECORDING,
        PYTHON,
        (
            TIME,
            """
def fibonacci(n):
    return n if n < 2 else fibonacci(n - 1) + fibonacci(n - 2)
""",
        ),
        named=("fibonacci",),
    ),
    Cell(
        "python/two functions, one slow",
        """
began = perf_counter()
for day in range(20):
    quick(day)
    slow(day)
seconds = perf_counter() - began
""",
        loop(20),
        PYTHON,
        (
            TIME,
            """
def quick(day):
    return sum(k for k in range(10_000))
def slow(day):
    total = 0
    for k in range(400_000):
        total ^= k * day
    return total
""",
        ),
        named=("slow", "total ^= k * day"),
    ),
    Cell(
        "python/generator expression",
        """
began = perf_counter()
total = sum(collatz(n) for n in range(1, 20_000))
seconds = perf_counter() - began
""",
        either(loop(19_999), RECORDING, {"call": (19_999,)}),
        PYTHON,
        (
            TIME,
            """
def collatz(n):
    steps = 0
    while n != 1:
        n = n // 2 if n % 2 == 0 else 3 * n + 1
        steps += 1
    return steps
""",
        ),
        named=("collatz", "n = n // 2", "steps += 1", "while n != 1"),
    ),
    Cell(
        "python/method of a class",
        """
game = Game(120)
began = perf_counter()
game.play(30)
seconds = perf_counter() - began
""",
        loop(30),
        PYTHON,
        (
            TIME,
            """
class Game:
    def __init__(self, size):
        self.size, self.alive = size, {(k * 7 % size, k * 3 % size) for k in range(3 * size)}
    def neighbours(self, x, y):
        return sum((x + i, y + j) in self.alive for i in (-1, 0, 1) for j in (-1, 0, 1) if i or j)
    def turn(self):
        cells = [(x, y) for x in range(self.size) for y in range(self.size)]
        self.alive = {cell for cell in cells if self.neighbours(*cell) in (2, 3)}
    def play(self, turns):
        for _ in range(turns):
            self.turn()
""",
        ),
        named=("neighbours", "return sum("),
    ),
    Cell(
        "python/module beside the notebook",
        """
began = perf_counter()
cleaned = cleaning.process(lines)
seconds = perf_counter() - began
""",
        either(RECORDING, loop(60_000), {"call": (60_000,)}),
        PYTHON,
        (
            TIME,
            """
import cleaning
lines = [f"The {k} quick Brown foxes jump {k} over a lazy dog" for k in range(60_000)]
""",
        ),
        named=("clean", "findall"),
        modules={"cleaning.py": CLEANING},
    ),
    Cell(
        "python/threads that hold the interpreter",
        """
began = perf_counter()
threads = [threading.Thread(target=spin, args=(2_500_000,)) for _ in range(3)]
for thread in threads:
    thread.start()
for thread in threads:
    thread.join()
seconds = perf_counter() - began
""",
        RECORDING,
        CONTENDED | PYTHON,
        (
            TIME,
            """
import threading
def spin(times):
    total = 0
    for k in range(times):
        total += k & 3
    return total
""",
        ),
        named=("spin", "total += k & 3"),
    ),
    Cell(
        "python/continue and finally",
        """
kept = []
began = perf_counter()
for k in range(30):
    try:
        if k % 3 == 0:
            continue
        kept.append(digits(k))
    finally:
        digits(1)
seconds = perf_counter() - began
""",
        loop(30),
        PYTHON,
        (
            TIME,
            """
def digits(k):
    total = 0
    for n in range(60_000):
        total += len(str(n * k))
    return total
""",
        ),
        named=("digits", "total += len(str(n * k))"),
    ),
    Cell(
        "python/straight line",
        """
began = perf_counter()
text = json.dumps(records)
parsed = json.loads(text)
ordered = sorted(parsed, key=lambda record: record["b"])
seconds = perf_counter() - began
""",
        RECORDING,
        PYTHON | COMPUTE,
        (
            TIME,
            """
import json
records = [{"a": k, "b": -k * 7 % 1000, "c": str(k)} for k in range(250_000)]
""",
        ),
        named=("dumps", "loads", "sorted", "json.", "encode", "decode"),
    ),
    Cell(
        "scikit-learn/fit in a loop",
        """
began = perf_counter()
for depth in range(1, 11):
    RandomForestClassifier(10, max_depth=depth, random_state=0).fit(x, y)
seconds = perf_counter() - began
""",
        loop(10),
        CALLED | OVERHEAD,
        (
            NUMPY,
            """
from sklearn.ensemble import RandomForestClassifier
x = rng.normal(size=(4000, 20))
y = rng.integers(0, 2, 4000)
""",
        ),
        named=("fit",),
        needs=("sklearn",),
    ),
    Cell(
        "scikit-learn/one fit",
        """
began = perf_counter()
model = GradientBoostingClassifier(n_estimators=30, random_state=0).fit(x, y)
seconds = perf_counter() - began
""",
        RECORDING,
        CALLED | OVERHEAD,
        (
            NUMPY,
            """
from sklearn.ensemble import GradientBoostingClassifier
x = rng.normal(size=(4000, 20))
y = rng.integers(0, 2, 4000)
""",
        ),
        named=("fit",),
        needs=("sklearn",),
    ),
)
