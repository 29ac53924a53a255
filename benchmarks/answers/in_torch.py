"""Cells of PyTorch."""

from __future__ import annotations

from cells import COMPUTE, INPUT, OVERHEAD, PYTHON, RECORDING, Cell, add, calls, either, loop

TORCH = """
import time
from time import perf_counter
import torch
from torch import nn
from torch.nn import functional as F
torch.manual_seed(0)
net = nn.Sequential(nn.Linear(512, 768), nn.ReLU(), nn.Linear(768, 768), nn.ReLU(), nn.Linear(768, 10))
x, y = torch.randn(512, 512), torch.randint(0, 10, (512,))
net(x).sum().backward()
"""

OPTIMIZER = "optimizer = torch.optim.SGD(net.parameters(), lr=1e-3)"

BATCHES = "batches = [(torch.randn(512, 512), torch.randint(0, 10, (512,))) for _ in range(10)]"

PROGRESS = """
class Progress:
    \"\"\"A progress bar without the bar.\"\"\"
    def __init__(self, items):
        self.items, self.done = items, 0
    def __len__(self):
        return len(self.items)
    def __iter__(self):
        for item in self.items:
            yield item
            self.done += 1
"""

AUGMENT = """
def augment(x):
    total = 0
    for i in range(60_000):
        total += i * i % 7
    return x + total % 2
"""

TRAINER = """
import torch
from torch.nn import functional as F


class Trainer:
    def __init__(self, model, batches, lr=1e-3):
        self.model, self.batches = model, batches
        self.optimizer = torch.optim.SGD(model.parameters(), lr=lr)

    def training_step(self, x, y):
        self.optimizer.zero_grad()
        loss = F.cross_entropy(self.model(x), y)
        loss.backward()
        self.optimizer.step()
        return loss.item()

    def train(self, epochs):
        self.model.train()
        for _ in range(epochs):
            for x, y in self.batches:
                self.training_step(x, y)

    def evaluate(self):
        self.model.eval()
        right = 0
        with torch.no_grad():
            for x, y in self.batches:
                right += (self.model(x).argmax(1) == y).sum().item()
        return right
"""


add(
    Cell(
        "torch/inference loop",
        """
began = perf_counter()
for i in range(30):
    net(x)
seconds = perf_counter() - began
""",
        loop(30),
        COMPUTE,
        (TORCH,),
    ),
    Cell(
        "torch/one call",
        """
began = perf_counter()
scores = deep(x)
seconds = perf_counter() - began
""",
        RECORDING,
        COMPUTE,
        (
            TORCH,
            "deep = nn.Sequential(*[nn.Linear(512, 2048), nn.Linear(2048, 512)] * 20)",
            "deep(x)",
        ),
    ),
    Cell(
        "torch/SGD by hand",
        """
lr = 1e-4
began = perf_counter()
for i in range(30):
    loss = F.cross_entropy(net(x), y)
    loss.backward()
    with torch.no_grad():
        for w in net.parameters():
            w -= lr * w.grad
            w.grad = None
seconds = perf_counter() - began
""",
        loop(30),
        COMPUTE,
        (TORCH, "net.zero_grad(set_to_none=True)"),
    ),
    Cell(
        "torch/LSTM fed its output",
        """
out, state = start, None
produced = []
began = perf_counter()
with torch.no_grad():
    for t in range(40):
        out, state = lstm(out, state)
        produced.append(out)
seconds = perf_counter() - began
""",
        loop(40),
        COMPUTE,
        (
            TORCH,
            """
lstm = nn.LSTM(768, 768)
start = torch.randn(1, 256, 768)
lstm(start)
""",
        ),
    ),
    Cell(
        "torch/training",
        """
began = perf_counter()
for i in range(30):
    optimizer.zero_grad()
    loss = F.cross_entropy(net(x), y)
    loss.backward()
    optimizer.step()
seconds = perf_counter() - began
""",
        loop(30),
        COMPUTE,
        (TORCH, OPTIMIZER),
    ),
    Cell(
        "torch/training in a function of the cell",
        """
def train(steps):
    began = perf_counter()
    for _ in range(steps):
        optimizer.zero_grad()
        F.cross_entropy(net(x), y).backward()
        optimizer.step()
    return perf_counter() - began

seconds = train(30)
""",
        loop(30),
        COMPUTE,
        (TORCH, OPTIMIZER),
    ),
    Cell(
        "torch/inference in a function of an earlier cell",
        "total, seconds = score(24)",
        loop(24),
        COMPUTE,
        (
            TORCH,
            """
def score(times):
    total = 0.0
    began = perf_counter()
    for _ in range(times):
        total += net(x).sum().item()
    return total, perf_counter() - began
""",
        ),
    ),
    Cell(
        "torch/inference in a method",
        """
scorer = Scorer(net)
scorer.run(24)
seconds = scorer.seconds
""",
        loop(24),
        COMPUTE,
        (
            TORCH,
            """
class Scorer:
    def __init__(self, model):
        self.model, self.sums = model, []
    def run(self, times):
        began = perf_counter()
        for _ in range(times):
            self.sums.append(self.model(x).sum().item())
        self.seconds = perf_counter() - began
""",
        ),
    ),
    Cell(
        "torch/epochs by batches",
        """
began = perf_counter()
for epoch in range(3):
    for xb, yb in batches:
        optimizer.zero_grad()
        F.cross_entropy(net(xb), yb).backward()
        optimizer.step()
seconds = perf_counter() - began
""",
        loop(30),
        COMPUTE,
        (TORCH, OPTIMIZER, BATCHES),
    ),
    Cell(
        "torch/epochs by batches without an optimizer",
        """
began = perf_counter()
for epoch in range(3):
    for xb, yb in batches:
        loss = F.cross_entropy(net(xb), yb)
seconds = perf_counter() - began
""",
        loop(30),
        COMPUTE,
        (TORCH, BATCHES),
    ),
    Cell(
        "torch/slow items of a DataLoader",
        """
began = perf_counter()
for xb in loader:
    net(xb)
seconds = perf_counter() - began
""",
        loop(20),
        INPUT,
        (
            TORCH,
            """
class Slow(torch.utils.data.Dataset):
    def __len__(self):
        return 160
    def __getitem__(self, index):
        time.sleep(0.005)
        return torch.zeros(512)
loader = torch.utils.data.DataLoader(Slow(), batch_size=8)
""",
        ),
    ),
    Cell(
        "torch/tiny batches",
        """
began = perf_counter()
for i in range(1500):
    optimizer.zero_grad()
    small(xs).sum().backward()
    optimizer.step()
seconds = perf_counter() - began
""",
        loop(1500),
        OVERHEAD,
        (
            TORCH,
            """
small, xs = nn.Sequential(nn.Linear(8, 8), nn.ReLU(), nn.Linear(8, 1)), torch.randn(4, 8)
optimizer = torch.optim.SGD(small.parameters(), lr=1e-3)
""",
        ),
    ),
    Cell(
        "torch/Python in the loop",
        """
began = perf_counter()
for i in range(60):
    small(augment(xs))
seconds = perf_counter() - began
""",
        loop(60),
        PYTHON,
        (TORCH, AUGMENT, "small, xs = nn.Linear(8, 8), torch.randn(4, 8)"),
        named=("augment", "total += i * i % 7"),
    ),
    Cell(
        "torch/validation in between",
        """
seconds = 0.0
for epoch in range(3):
    net.train()
    began = perf_counter()
    for xb, yb in batches:
        optimizer.zero_grad()
        F.cross_entropy(net(xb), yb).backward()
        optimizer.step()
    seconds += perf_counter() - began
    net.eval()
    with torch.no_grad():
        for xb, yb in batches[:4]:
            F.cross_entropy(net(xb), yb).item()
""",
        loop(30),
        COMPUTE,
        (TORCH, OPTIMIZER, BATCHES),
    ),
    Cell(
        "torch/while",
        """
i, total = 0, 0.0
began = perf_counter()
while i < 25:
    total += net(x).mean().item()
    i += 1
seconds = perf_counter() - began
""",
        loop(25),
        COMPUTE,
        (TORCH,),
    ),
    Cell(
        "torch/comprehension",
        """
began = perf_counter()
scores = [net(x) for _ in range(30)]
seconds = perf_counter() - began
""",
        loop(30),
        COMPUTE,
        (TORCH,),
    ),
    Cell(
        "torch/enumerate and zip",
        """
xs, ys = [a for a, _ in batches], [b for _, b in batches]
began = perf_counter()
for i, (xb, yb) in enumerate(zip(xs * 2, ys * 2)):
    F.cross_entropy(net(xb), yb)
seconds = perf_counter() - began
""",
        loop(20),
        COMPUTE,
        (TORCH, BATCHES),
    ),
    Cell(
        "torch/progress bar",
        """
began = perf_counter()
for xb, yb in Progress(batches * 3):
    F.cross_entropy(net(xb), yb)
seconds = perf_counter() - began
""",
        loop(30),
        COMPUTE,
        (TORCH, BATCHES, PROGRESS),
    ),
    Cell(
        "torch/generator that augments in Python",
        """
def source(count):
    for _ in range(count):
        yield augment(xs)

began = perf_counter()
for xb in source(60):
    small(xb)
seconds = perf_counter() - began
""",
        loop(60),
        INPUT | PYTHON,
        (TORCH, AUGMENT, "small, xs = nn.Linear(8, 8), torch.randn(4, 8)"),
        named=("augment", "total += i * i % 7"),
    ),
    Cell(
        "torch/break",
        """
began = perf_counter()
for i in range(1000):
    net(x)
    if i == 19:
        break
else:
    raise AssertionError
seconds = perf_counter() - began
""",
        loop(20),
        COMPUTE,
        (TORCH,),
    ),
    Cell(
        "torch/exception that is caught",
        """
began = perf_counter()
try:
    for i in range(1000):
        if i == 20:
            raise ValueError(i)
        net(x)
except ValueError:
    seconds = perf_counter() - began
""",
        loop(20, 21),
        COMPUTE,
        (TORCH,),
    ),
    Cell(
        "torch/exception that ends the cell",
        """
began = perf_counter()
for i in range(1000):
    if i == 20:
        raise ValueError(i)
    net(x)
    seconds = perf_counter() - began
""",
        loop(20, 21),
        COMPUTE,
        (TORCH,),
        fails=True,
    ),
    Cell(
        "torch/%%time below",
        """
%%nbprof
%%time
began = perf_counter()
for i in range(25):
    net(x)
seconds = perf_counter() - began
""",
        loop(25),
        COMPUTE,
        (TORCH,),
    ),
    Cell(
        "torch/async for",
        """
import asyncio

async def stream(count):
    for _ in range(count):
        await asyncio.sleep(0)
        yield x

began = perf_counter()
async for xb in stream(25):
    net(xb)
seconds = perf_counter() - began
""",
        loop(25),
        COMPUTE,
        (TORCH,),
    ),
    Cell(
        "torch/training on a thread",
        """
import threading

def train(steps):
    global seconds
    began = perf_counter()
    for _ in range(steps):
        optimizer.zero_grad()
        F.cross_entropy(net(x), y).backward()
        optimizer.step()
    seconds = perf_counter() - began

thread = threading.Thread(target=train, args=(30,))
thread.start()
thread.join()
""",
        loop(30),
        COMPUTE,
        (TORCH, OPTIMIZER),
    ),
    Cell(
        "torch/Trainer that trains",
        """
began = perf_counter()
trainer.train(epochs=3)
seconds = perf_counter() - began
""",
        loop(30),
        COMPUTE,
        (
            TORCH,
            BATCHES,
            """
from training import Trainer
trainer = Trainer(net, batches)
""",
        ),
        modules={"training.py": TRAINER},
    ),
    Cell(
        "torch/Trainer that evaluates",
        """
began = perf_counter()
right = trainer.evaluate()
seconds = perf_counter() - began
""",
        either(calls(30), loop(30)),
        COMPUTE,
        (
            TORCH,
            BATCHES,
            """
from training import Trainer
trainer = Trainer(net, batches * 3)
""",
        ),
        modules={"training.py": TRAINER},
    ),
    Cell(
        "torch/recursion",
        """
def refine(value, depth):
    value = F.relu(square(value))
    return value if depth == 1 else refine(value, depth - 1)

began = perf_counter()
result = refine(big, 30)
seconds = perf_counter() - began
""",
        either(calls(30), loop(30), RECORDING),
        COMPUTE,
        (
            TORCH,
            """
square, big = nn.Linear(1024, 1024), torch.randn(512, 1024)
square(big)
""",
        ),
    ),
    Cell(
        "torch/five calls in a row",
        """
began = perf_counter()
a = wide(x)
b = wide(x * 2)
c = wide(x + 1)
d = wide(x - 1)
e = wide(x / 2)
seconds = perf_counter() - began
""",
        calls(5),
        COMPUTE,
        (
            TORCH,
            """
wide = nn.Sequential(nn.Linear(512, 4096), nn.ReLU(), nn.Linear(4096, 1024))
wide(x)
""",
        ),
    ),
    Cell(
        "torch/two different calls",
        """
began = perf_counter()
a = wide(x)
b = torch.linalg.svdvals(square)
seconds = perf_counter() - began
""",
        RECORDING,
        COMPUTE,
        (
            TORCH,
            """
wide = nn.Sequential(nn.Linear(512, 4096), nn.ReLU(), nn.Linear(4096, 2048))
square = torch.randn(700, 700)
wide(x)
""",
        ),
    ),
    Cell(
        "torch/loop that takes no time",
        """
began = perf_counter()
sizes = []
for k in range(5):
    sizes.append(k * 100)
values = torch.linalg.svdvals(square)
seconds = perf_counter() - began
""",
        RECORDING,
        COMPUTE,
        (TORCH, "square = torch.randn(900, 900)"),
    ),
    Cell(
        "torch/convolutions",
        """
began = perf_counter()
with torch.inference_mode():
    for i in range(20):
        conv(images)
seconds = perf_counter() - began
""",
        loop(20),
        COMPUTE,
        (
            TORCH,
            """
conv = nn.Sequential(nn.Conv2d(3, 32, 3), nn.ReLU(), nn.Conv2d(32, 32, 3), nn.ReLU())
images = torch.randn(16, 3, 64, 64)
conv(images)
""",
        ),
    ),
    Cell(
        "torch/straight-line tensor work",
        """
began = perf_counter()
product = square @ square
values = torch.linalg.eigvalsh(product + product.T)
order = values.argsort()
seconds = perf_counter() - began
""",
        RECORDING,
        COMPUTE,
        (TORCH, "square = torch.randn(1000, 1000)"),
    ),
)
