"""Cells of TensorFlow, and of Keras on each of its backends."""

from __future__ import annotations

from cells import COMPUTE, INPUT, OVERHEAD, RECORDING, Cell, add, calls, either, loop

TENSORFLOW = """
import time
from time import perf_counter
import numpy as np
import tensorflow as tf
tf.random.set_seed(0)
x = tf.random.normal((512, 512))
y = tf.random.uniform((512,), 0, 10, tf.int32)
w1 = tf.Variable(tf.random.normal((512, 1024)) / 32)
w2 = tf.Variable(tf.random.normal((1024, 10)) / 32)

def loss_of(x, y):
    logits = tf.nn.relu(x @ w1) @ w2
    return tf.reduce_mean(tf.nn.sparse_softmax_cross_entropy_with_logits(y, logits))
"""

MODEL = """
model = tf.keras.Sequential([tf.keras.layers.Input((512,)), tf.keras.layers.Dense(2048, "relu"),
                             tf.keras.layers.Dense(2048, "relu"), tf.keras.layers.Dense(10)])
model(x)
"""

TRAIN_STEP = """
@tf.function
def train_step(x, y):
    with tf.GradientTape() as tape:
        loss = loss_of(x, y)
    for variable, gradient in zip((w1, w2), tape.gradient(loss, (w1, w2))):
        variable.assign_sub(1e-3 * gradient)
    return loss
train_step(x, y)
"""

KERAS = """
import time
from time import perf_counter
import numpy as np
import keras
keras.utils.set_random_seed(0)
rng = np.random.default_rng(0)
x = rng.normal(size=(5120, 256)).astype("float32")
y = rng.integers(0, 10, 5120)
model = keras.Sequential([keras.layers.Input((256,)), keras.layers.Dense(1024, "relu"),
                          keras.layers.Dense(1024, "relu"), keras.layers.Dense(10)])
model.compile("sgd", keras.losses.SparseCategoricalCrossentropy(from_logits=True))

class Clock(keras.callbacks.Callback):
    \"\"\"From the begin of an epoch, so with the wait for the first batch, to its last batch.\"\"\"
    seconds = 0.0
    def on_epoch_begin(self, epoch, logs=None):
        self.began = perf_counter()
    def on_train_batch_end(self, batch, logs=None):
        self.ended = perf_counter()
    def on_epoch_end(self, epoch, logs=None):
        self.seconds += self.ended - self.began
    def on_predict_begin(self, logs=None):
        self.began = perf_counter()
    def on_predict_batch_end(self, batch, logs=None):
        self.ended = perf_counter()
    def on_predict_end(self, logs=None):
        self.seconds += self.ended - self.began
    on_test_begin, on_test_batch_end, on_test_end = on_predict_begin, on_predict_batch_end, on_predict_end
clock = Clock()
"""

add(
    Cell(
        "tensorflow/inference loop",
        """
began = perf_counter()
for i in range(50):
    model(x)
seconds = perf_counter() - began
""",
        loop(50),
        COMPUTE,
        (TENSORFLOW, MODEL),
    ),
    Cell(
        "tensorflow/train step of a tf.function",
        """
began = perf_counter()
for i in range(50):
    loss = train_step(x, y)
seconds = perf_counter() - began
""",
        loop(50),
        COMPUTE,
        (TENSORFLOW, TRAIN_STEP),
    ),
    Cell(
        "tensorflow/tf.data alone",
        """
batches = iter(dataset)
began = perf_counter()
for batch in batches:
    pass
seconds = perf_counter() - began
""",
        loop(40),
        INPUT,
        (
            TENSORFLOW,
            """
def heavy(item):
    for _ in range(10):
        item = tf.signal.irfft(tf.signal.rfft(tf.sin(item)))
    return item
dataset = tf.data.Dataset.from_tensor_slices(tf.random.normal((640, 8192))).map(heavy).batch(16)
""",
        ),
    ),
    Cell(
        "tensorflow/one call",
        """
began = perf_counter()
singular = tf.linalg.svd(square, compute_uv=False).numpy()
seconds = perf_counter() - began
""",
        RECORDING,
        COMPUTE,
        (TENSORFLOW, "square = tf.random.normal((1500, 1500))"),
    ),
    Cell(
        "tensorflow/GradientTape without a tf.function",
        """
began = perf_counter()
for i in range(40):
    with tf.GradientTape() as tape:
        loss = loss_of(x, y)
    gradients = tape.gradient(loss, (w1, w2))
    optimizer.apply_gradients(zip(gradients, (w1, w2)))
seconds = perf_counter() - began
""",
        loop(40),
        COMPUTE,
        (
            TENSORFLOW,
            """
optimizer = tf.keras.optimizers.SGD(1e-3)
optimizer.build((w1, w2))
""",
        ),
    ),
    Cell(
        "tensorflow/tiny calls of a tf.function",
        """
began = perf_counter()
for i in range(3000):
    v = tiny(v)
seconds = perf_counter() - began
""",
        loop(3000),
        OVERHEAD,
        (
            TENSORFLOW,
            """
tiny = tf.function(lambda v: v * 2.0 + 1.0)
v = tf.ones(8)
tiny(v)
""",
        ),
    ),
    Cell(
        "tensorflow/batches of a slow generator",
        """
batches = iter(dataset)
began = perf_counter()
for xb, yb in batches:
    loss = train_step(xb, yb)
seconds = perf_counter() - began
""",
        loop(20),
        INPUT,
        (
            TENSORFLOW,
            TRAIN_STEP,
            """
xn, yn = x.numpy(), y.numpy()
def rows():
    for _ in range(20):
        time.sleep(0.06)
        yield xn, yn
dataset = tf.data.Dataset.from_generator(rows, output_signature=(
    tf.TensorSpec((512, 512)), tf.TensorSpec((512,), tf.int32)))
""",
        ),
    ),
    Cell(
        "tensorflow/two different calls",
        """
began = perf_counter()
q, r = tf.linalg.qr(square)
values = tf.linalg.eigvalsh(square + tf.transpose(square)).numpy()
seconds = perf_counter() - began
""",
        RECORDING,
        COMPUTE,
        (TENSORFLOW, "square = tf.random.normal((800, 800))"),
    ),
)

for backend in ("tensorflow", "jax", "torch"):
    environment = {"KERAS_BACKEND": backend}
    add(
        Cell(
            f"keras-{backend}/fit",
            """
model.fit(x, y, batch_size=256, epochs=2, verbose=0, callbacks=[clock])
seconds = clock.seconds
""",
            loop(40),
            COMPUTE,
            (KERAS, "model.fit(x[:512], y[:512], batch_size=256, verbose=0)"),
            environment=environment,
        ),
        Cell(
            f"keras-{backend}/predict",
            """
scores = model.predict(x, batch_size=256, verbose=0, callbacks=[clock])
seconds = clock.seconds
""",
            either(loop(20), calls(20)),
            COMPUTE,
            (KERAS, "model.predict(x[:512], batch_size=256, verbose=0)"),
            environment=environment,
        ),
        Cell(
            f"keras-{backend}/train_on_batch",
            """
began = perf_counter()
for start in range(0, 5120, 256):
    model.train_on_batch(x[start : start + 256], y[start : start + 256])
seconds = perf_counter() - began
""",
            loop(20),
            COMPUTE,
            (KERAS, "for _ in range(3): model.train_on_batch(x[:256], y[:256])"),
            environment=environment,
        ),
    )
