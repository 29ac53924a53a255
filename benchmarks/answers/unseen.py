"""Cells that were set aside: written in one go, without looking at what nbprof says of them.

Nothing in nbprof may be changed on account of one of these: they tell how it does with cells that
nobody looked at. A cell that was looked into moves to the others, and a new one takes its place.
"""

from __future__ import annotations

from cells import (
    COMPUTE,
    CONTENDED,
    INPUT,
    OVERHEAD,
    PYTHON,
    RECORDING,
    Cell,
    calls,
    either,
    loop,
)
from cells import add as register
from in_jax import JAX
from in_python import CALLED, NUMPY, PANDAS, TIME
from in_tensorflow import KERAS, MODEL, TENSORFLOW, TRAIN_STEP
from in_torch import BATCHES, OPTIMIZER, TORCH, TRAINER


def add(name: str, text: str, *truth: object, **more: object) -> None:
    register(Cell(f"{name}", text, *truth, unseen=True, **more))  # type: ignore[arg-type]


add(
    "torch/closure of LBFGS",
    """
def closure():
    optimizer.zero_grad()
    loss = F.cross_entropy(net(x), y)
    loss.backward()
    return loss

began = perf_counter()
for i in range(12):
    optimizer.step(closure)
seconds = perf_counter() - began
""",
    loop(12),
    COMPUTE,
    (TORCH, "optimizer = torch.optim.LBFGS(net.parameters(), lr=0.1, max_iter=2)"),
)
add(
    "torch/accumulated gradients",
    """
began = perf_counter()
for i, (xb, yb) in enumerate(batches * 4):
    (F.cross_entropy(net(xb), yb) / 4).backward()
    if i % 4 == 3:
        optimizer.step()
        optimizer.zero_grad()
seconds = perf_counter() - began
""",
    either({"step": (10,)}, loop(40)),
    COMPUTE,
    (TORCH, OPTIMIZER, BATCHES),
)
add(
    "torch/attention, no gradient",
    """
outputs = []
began = perf_counter()
with torch.no_grad():
    for block in blocks:
        tokens = block(tokens)
        outputs.append(tokens.mean())
seconds = perf_counter() - began
""",
    loop(16),
    COMPUTE,
    (
        TORCH,
        """
blocks = [nn.TransformerEncoderLayer(256, 4, 512, batch_first=True).eval() for _ in range(16)]
tokens = torch.randn(16, 64, 256)
with torch.no_grad(): blocks[0](tokens)
""",
    ),
)
add(
    "torch/greedy decoding",
    """
def generate(prompt, length):
    text = prompt
    for _ in range(length):
        hidden = body(table(text))[0][:, -1]
        token = head(hidden).argmax(-1, keepdim=True)
        text = torch.cat([text, token], 1)
    return text

began = perf_counter()
with torch.no_grad():
    text = generate(torch.zeros(16, 8, dtype=torch.long), 32)
seconds = perf_counter() - began
""",
    loop(32),
    COMPUTE,
    (
        TORCH,
        """
table, body, head = nn.Embedding(1000, 256), nn.GRU(256, 512, batch_first=True), nn.Linear(512, 1000)
body(table(torch.zeros(16, 8, dtype=torch.long)))
""",
    ),
)
add(
    "torch/Trainer in a function, twice",
    """
def experiment(rate):
    trainer = Trainer(net, batches, rate)
    trainer.train(1)

began = perf_counter()
for rate in (1e-3, 1e-4):
    experiment(rate)
seconds = perf_counter() - began
""",
    loop(20),
    COMPUTE,
    (TORCH, BATCHES, "from training import Trainer"),
    modules={"training.py": TRAINER},
)
add(
    "torch/ridge regression straight down",
    """
began = perf_counter()
gram = data.T @ data
inverse = torch.linalg.inv(gram + torch.eye(1200))
weights = inverse @ (data.T @ target)
error = (data @ weights - target).square().mean()
seconds = perf_counter() - began
""",
    RECORDING,
    COMPUTE,
    (TORCH, "data, target = torch.randn(6000, 1200), torch.randn(6000, 1)"),
)
add(
    "torch/batches made in Python",
    """
def collate(rows):
    return torch.tensor([[float(v) for v in row] for row in rows])

began = perf_counter()
for start in range(0, 640, 32):
    batch = collate(rows[start : start + 32])
    small(batch)
seconds = perf_counter() - began
""",
    loop(20),
    PYTHON | INPUT,
    (
        TORCH,
        """
small = nn.Linear(4000, 4)
rows = [[str(k % 10) for k in range(4000)] for _ in range(640)]
""",
    ),
    named=("collate", "torch.tensor([[float(v)", "listcomp"),
)
add(
    "torch/two models in turns",
    """
began = perf_counter()
for i in range(20):
    fake = net(x)
    score = critic(fake)
seconds = perf_counter() - began
""",
    loop(20),
    COMPUTE,
    (
        TORCH,
        (
            "critic = nn.Sequential(nn.Linear(10, 2048), nn.ReLU(), nn.Linear(2048, 512),"
            " nn.Linear(512, 1))"
        ),
    ),
)
add(
    "torch/many tiny ops",
    """
began = perf_counter()
with torch.no_grad():
    for i in range(4000):
        v = torch.tanh(v * 0.9 + 0.1).clamp(-1, 1)
seconds = perf_counter() - began
""",
    loop(4000),
    OVERHEAD,
    (TORCH, "v = torch.randn(16)"),
)
add(
    "torch/map over batches",
    """
began = perf_counter()
losses = list(map(lambda pair: F.cross_entropy(net(pair[0]), pair[1]).item(), batches * 3))
seconds = perf_counter() - began
""",
    either(calls(30), loop(30)),
    COMPUTE,
    (TORCH, BATCHES),
)
add(
    "torch/%%time above",
    """
%%time
%%nbprof
began = perf_counter()
for xb, yb in batches * 2:
    net(xb)
seconds = perf_counter() - began
""",
    loop(20),
    COMPUTE,
    (TORCH, BATCHES),
)
add(
    "jax/scan with a Python loop of epochs",
    """
began = perf_counter()
for epoch in range(8):
    w, losses = epoch_of(w, batches)
    losses.block_until_ready()
seconds = perf_counter() - began
""",
    loop(8),
    COMPUTE,
    (
        JAX,
        """
@jax.jit
def epoch_of(w, batches):
    def body(w, batch):
        loss, grad = jax.value_and_grad(loss_of)(w, batch, y)
        return w - 1e-3 * grad, loss
    return jax.lax.scan(body, w, batches)
batches = jnp.stack([x, x * 2, x * 3])
epoch_of(w, batches)[1].block_until_ready()
""",
    ),
)
add(
    "jax/while until it converges",
    """
steps, change = 0, 1.0
began = perf_counter()
while steps < 16:
    new = chain(v)
    change = float(jnp.abs(new - v).max())
    v, steps = new, steps + 1
seconds = perf_counter() - began
""",
    loop(16),
    COMPUTE,
    (JAX, "v = x + 0\nfloat(jnp.abs(chain(v) - v).max())"),
)
add(
    "jax/NumPy between the steps",
    """
began = perf_counter()
for i in range(16):
    order = np.sort(noise, axis=0)
    v = tiny(v).block_until_ready()
seconds = perf_counter() - began
""",
    loop(16),
    CALLED,
    (
        JAX,
        """
import numpy as np
noise = np.random.default_rng(0).normal(size=(900, 900))
tiny = jax.jit(lambda v: v * 2 + 1)
v = jnp.ones(8)
tiny(v).block_until_ready()
""",
    ),
    named=("sort", "order = np.sort"),
)
add(
    "jax/two programs, once each",
    """
began = perf_counter()
a = first(x).block_until_ready()
b = second(x).block_until_ready()
seconds = perf_counter() - began
""",
    RECORDING,
    COMPUTE,
    (
        JAX,
        """
@jax.jit
def first(x):
    for _ in range(10):
        x = jnp.tanh(x @ x)
    return x
@jax.jit
def second(x):
    return jnp.linalg.qr(x)[0]
first(x).block_until_ready(), second(x).block_until_ready()
""",
    ),
)
add(
    "tensorflow/epochs over a dataset",
    """
began = perf_counter()
for epoch in range(2):
    for xb, yb in dataset:
        loss = train_step(xb, yb)
seconds = perf_counter() - began
""",
    loop(40),
    COMPUTE,
    (
        TENSORFLOW,
        TRAIN_STEP,
        """
dataset = tf.data.Dataset.from_tensors((x, y)).repeat(20).cache().prefetch(4)
for xb, yb in dataset: train_step(xb, yb)
""",
    ),
)
add(
    "tensorflow/model in a comprehension",
    """
began = perf_counter()
outputs = [model(part, training=False) for part in parts]
seconds = perf_counter() - began
""",
    loop(24),
    COMPUTE,
    (TENSORFLOW, MODEL, "parts = [x * k for k in range(24)]"),
)
add(
    "tensorflow/tiny eager ops",
    """
began = perf_counter()
for i in range(3000):
    v = tf.tanh(v * 0.9 + 0.1)
seconds = perf_counter() - began
""",
    loop(3000),
    OVERHEAD,
    (TENSORFLOW, "v = tf.ones(16)\ntf.tanh(v * 0.9 + 0.1)"),
)
for backend in ("tensorflow", "jax", "torch"):
    add(
        f"keras-{backend}/evaluate",
        """
model.evaluate(x, y, batch_size=256, verbose=0, callbacks=[clock])
seconds = clock.seconds
""",
        either(loop(20), calls(20)),
        COMPUTE,
        (KERAS, "model.evaluate(x[:512], y[:512], batch_size=256, verbose=0)"),
        environment={"KERAS_BACKEND": backend},
    )
    add(
        f"keras-{backend}/slow PyDataset",
        """
model.fit(Slow(), epochs=1, verbose=0, callbacks=[clock])
seconds = clock.seconds
""",
        loop(15),
        INPUT,
        (
            KERAS,
            """
class Slow(keras.utils.PyDataset):
    def __len__(self):
        return 15
    def __getitem__(self, index):
        time.sleep(0.08)
        return x[:64], y[:64]
model.fit(x[:128], y[:128], batch_size=64, verbose=0)
""",
        ),
        environment={"KERAS_BACKEND": backend},
    )
add(
    "numpy/power iteration",
    """
def dominant(matrix, tolerance):
    vector, before, turns = np.ones(len(matrix)), 0.0, 0
    while True:
        vector = matrix @ vector
        vector /= np.linalg.norm(vector)
        turns += 1
        if turns == 60:
            return vector, turns

began = perf_counter()
vector, turns = dominant(matrix, 1e-9)
seconds = perf_counter() - began
""",
    loop(60),
    CALLED,
    (NUMPY, "matrix = rng.normal(size=(4000, 4000))"),
    named=("dominant", "vector = matrix @ vector"),
)
add(
    "numpy/Monte Carlo, a pure Python inner loop",
    """
inside = 0
began = perf_counter()
for trial in range(20):
    points = rng.random((30_000, 2))
    for px, py in points:
        if px * px + py * py < 1:
            inside += 1
seconds = perf_counter() - began
""",
    loop(20, 600_000),
    PYTHON | INPUT,
    (NUMPY,),
    named=("if px * px + py * py < 1:", "for px, py in points:"),
)
add(
    "pandas/apply over rows",
    """
began = perf_counter()
priced = rows.apply(price, axis=1)
seconds = perf_counter() - began
""",
    either(RECORDING, {"call": (40_000,)}),
    PYTHON | OVERHEAD,
    (
        PANDAS,
        """
rows = frame.head(40_000)
def price(row):
    return row["value"] * 2 if row["key"] % 2 else row["value"] / 3
""",
    ),
    named=("price", "apply"),
)
add(
    "pandas/rolling windows straight down",
    """
began = perf_counter()
smooth = long.rolling(200).median()
ranked = smooth.rank()
binned = pd.cut(ranked, 20)
seconds = perf_counter() - began
""",
    RECORDING,
    CALLED,
    (PANDAS, "long = pd.Series(rng.normal(size=600_000))"),
    named=("median", "rolling", "smooth = "),
)
add(
    "python/queue between threads",
    """
def produce():
    for k in range(25):
        jobs.put(bytes(k % 256 for k in range(150_000)))
    jobs.put(None)

began = perf_counter()
threading.Thread(target=produce).start()
sizes = []
while (job := jobs.get()) is not None:
    sizes.append(sum(job))
seconds = perf_counter() - began
""",
    loop(25, 26),
    PYTHON | INPUT | CONTENDED,
    (TIME, "import queue, threading\njobs = queue.Queue(4)"),
    named=("produce", "bytes(k % 256"),
)
add(
    "python/dynamic programming",
    """
def distance(a, b):
    row = list(range(len(b) + 1))
    for i, ca in enumerate(a, 1):
        before, row[0] = row[0], i
        for j, cb in enumerate(b, 1):
            before, row[j] = row[j], min(row[j] + 1, row[j - 1] + 1, before + (ca != cb))
    return row[-1]

began = perf_counter()
distances = {(a, b): distance(a, b) for a in words for b in words}
seconds = perf_counter() - began
""",
    either(loop(64), RECORDING),
    PYTHON,
    (TIME, 'words = [chr(97 + k) * 60 + "abcxyz" * 20 for k in range(8)]'),
    named=("distance", "before, row[j] ="),
)
add(
    "python/await in a loop",
    """
import asyncio

async def handle(k):
    await asyncio.sleep(0)
    return sum(n * k % 7 for n in range(150_000))

began = perf_counter()
results = []
for k in range(30):
    results.append(await handle(k))
seconds = perf_counter() - began
""",
    loop(30),
    PYTHON,
    (TIME,),
    named=("handle", "genexpr", "sum(n * k % 7"),
)
add(
    "python/sort with a key, once",
    """
began = perf_counter()
ordered = sorted(names, key=lambda name: (len(name), name[::-1]))
seconds = perf_counter() - began
""",
    RECORDING,
    PYTHON,
    (TIME, "names = [str(k * 7919 % 1_000_003) for k in range(700_000)]"),
    named=("lambda", "ordered = sorted", "sorted"),
)
