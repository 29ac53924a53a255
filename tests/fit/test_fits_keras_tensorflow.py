"""The predicted peak of a Keras model on TensorFlow is that which its allocator records."""

from __future__ import annotations

import json

import pytest

from tests.support.profiles import require
from tests.support.programs import run

MODELS = """
import gc
import json
import random
import sys
import tempfile

import keras
import numpy as np
import tensorflow as tf
from keras import layers, ops

import nbprof
from nbprof.core.errors import NbprofError


def mlp():
    hidden = [layers.Dense(256, activation="relu") for _ in range(3)]
    return keras.Sequential([*hidden, layers.Dropout(0.1), layers.Dense(10)])


def wide():
    return keras.Sequential([keras.Input((256,)), layers.Dense(1000), layers.Dense(10)])


def convolutional():
    inputs = values = keras.Input((16, 16, 3))
    for filters in (8, 16):
        values = layers.Conv2D(filters, 3, padding="same")(values)
        values = layers.ReLU()(layers.BatchNormalization()(values))
    return keras.Model(inputs, layers.Dense(10)(layers.GlobalAveragePooling2D()(values)))


def residual():
    inputs = keras.Input((16, 16, 3))
    values = layers.Conv2D(16, 3, padding="same")(inputs)
    for _ in range(2):
        inner = layers.Conv2D(16, 3, padding="same", activation="relu")(values)
        inner = layers.Conv2D(16, 3, padding="same")(inner)
        values = layers.ReLU()(layers.Add()([values, inner]))
    return keras.Model(inputs, layers.Dense(10)(layers.Flatten()(values)))


def separable():
    inputs = values = keras.Input((16, 16, 3))
    for filters in (16, 32):
        values = layers.SeparableConv2D(filters, 3, padding="same", activation="gelu")(values)
        values = layers.MaxPooling2D()(values)
    return keras.Model(inputs, layers.Dense(10)(layers.Flatten()(values)))


def attention():
    inputs = keras.Input((32,), dtype="int32")
    values = layers.Embedding(500, 32)(inputs)
    for _ in range(2):
        seen = layers.MultiHeadAttention(2, 16, dropout=0.1)(values, values)
        values = layers.LayerNormalization()(layers.Add()([values, seen]))
        inner = layers.Dense(32)(layers.Dense(128, activation="gelu")(values))
        values = layers.LayerNormalization()(layers.Add()([values, inner]))
    return keras.Model(inputs, layers.Dense(10)(layers.GlobalAveragePooling1D()(values)))


def recurrent():
    return keras.Sequential([keras.Input((20, 16)), layers.LSTM(64), layers.Dense(10)])


def bidirectional():
    cells = layers.Bidirectional(layers.GRU(32, return_sequences=True))
    return keras.Sequential([keras.Input((20, 16)), cells, layers.Flatten(), layers.Dense(10)])


class Own(keras.Model):
    def __init__(self):
        super().__init__()
        self.blocks = [layers.Dense(128, activation="gelu"), layers.Dense(10)]
        self.scale = tf.ones((300, 128))

    def build(self, shape):
        self.factor = self.add_weight(shape=(128,), initializer="ones")
        self.blocks[0].build(shape)
        self.blocks[1].build((None, 128))

    @tf.function
    def scaled(self, x):
        return x * self.factor + ops.mean(self.scale, axis=0)

    def call(self, x):
        return self.blocks[1](self.scaled(self.blocks[0](x)))


def images():
    return np.ones((64, 16, 16, 3), "float32")


def series():
    return np.ones((64, 20, 16), "float32")


def rows():
    return np.ones((64, 256), "float32")


def words():
    return np.ones((64, 32), "int32")


momentum = lambda **options: keras.optimizers.SGD(0.01, momentum=0.9, **options)
adam = keras.optimizers.Adam
CASES = {
    "mlp": (mlp, rows(), adam),
    "wide": (wide, rows(), keras.optimizers.AdamW),
    "convolutional": (convolutional, images(), adam),
    "residual": (residual, images(), momentum),
    "separable": (separable, images(), keras.optimizers.RMSprop),
    "attention": (attention, words(), adam),
    "recurrent": (recurrent, series(), keras.optimizers.Adagrad),
    "bidirectional": (bidirectional, series(), adam),
    "own": (Own, rows(), keras.optimizers.SGD),
    "lion": (mlp, rows(), keras.optimizers.Lion),
}
y = np.zeros((64,), "int32")


def compiled(model, optimizer=adam, **options):
    model.compile(
        optimizer(**options),
        keras.losses.SparseCategoricalCrossentropy(from_logits=True),
        metrics=["accuracy"],
        jit_compile=True,
    )
    return model


def recorded_peak(build, step):
    # All memory that the program requests of TensorFlow's allocator, its inputs included; nothing
    # that was there before is freed.
    keras.utils.clear_session()
    gc.collect()
    with tempfile.TemporaryDirectory() as folder:
        tf.profiler.experimental.start(folder)
        model = build()
        for _ in range(2):
            step(model)
        tf.profiler.experimental.stop()
        rows = nbprof.load(folder).memory.timeline
    signs = rows["event"].map({"allocation": 1, "deallocation": -1})
    return int((signs * rows["requested_bytes"]).cumsum().max())


def tensor(array):
    # A copy: TensorFlow may take the memory of an array of NumPy.
    return tf.identity(tf.zeros(array.shape, array.dtype))


def training_peak(name, policy="float32", **options):
    make, x, optimizer = CASES[name]

    def build():
        keras.config.set_dtype_policy(policy)
        return compiled(make(), optimizer, **options), tensor(x), tensor(y)

    return recorded_peak(build, lambda built: built[0].train_on_batch(*built[1:]))


def bytes_of(variables):
    return sum(variable.value.numpy().nbytes for variable in variables)


def roles_of(fit):
    return {role.value: size for role, size in fit.roles.items()}
"""

PEAKS = (
    MODELS
    + """
found = {}
for name, (make, x, optimizer) in CASES.items():
    model = compiled(make(), optimizer)
    fit = nbprof.fits(model, (x, y), device="cpu")
    found[name] = {
        "predicted": fit.peak_bytes,
        "measured": training_peak(name),
        "roles": roles_of(fit),
        "batch": fit.batch_size,
    }
    if name in ("wide", "convolutional", "own"):
        model.train_on_batch(x, y)
        found[name] |= {
            "trained": nbprof.fits(model, (x, y)).peak_bytes,
            "weights": bytes_of(model.weights),
            "optimizer": bytes_of(model.optimizer.variables),
        }
print(json.dumps(found))
"""
)

LEVERS = (
    MODELS
    + """
x, found = rows(), {}
fit = nbprof.fits(compiled(mlp()), (x, y), device=2**23)
levers = {lever.name: lever for lever in fit.levers_of_step}
found["levers"] = list(levers)
found["limit"] = [levers["no change"].peak(fit.largest_batch + more) for more in (0, 1)]
found["accumulation"] = [
    levers["accumulation of 2 parts"].peak(64),
    training_peak("mlp", gradient_accumulation_steps=2),
]
found["mixed_bfloat16"] = [
    levers["mixed_bfloat16"].peak(64),
    training_peak("mlp", "mixed_bfloat16"),
]
keras.config.set_dtype_policy("float32")
# So many that their activations are larger than what initializers need.
many = np.ones((2048, 256), "float32")
prediction = nbprof.fits(compiled(mlp()), many)
found["predict"] = [
    prediction.peak_bytes,
    recorded_peak(
        lambda: (compiled(mlp()), tensor(many)), lambda built: built[0].predict_on_batch(built[1])
    ),
]
found["roles of predict"] = roles_of(prediction)
symbols = keras.KerasTensor((64, 256), "float64"), keras.KerasTensor((64,), "int64")
found["shapes"] = roles_of(nbprof.fits(compiled(mlp()), symbols))
model = mlp()
model.compile("adam", "mse", jit_compile=False)
elsewhere = nbprof.fits(model, (x, np.ones((64, 10), "float32")), device="A100-80GB")
found["elsewhere"] = [elsewhere.fits, list(elsewhere.assumptions), elsewhere.levers["note"].tolist()]
frozen = mlp()
frozen.layers[0].trainable = False
found["frozen"] = roles_of(nbprof.fits(compiled(frozen), (x, y)))
found["roles"] = roles_of(fit)
print(json.dumps(found))
"""
)

UNCHANGED = (
    MODELS
    + """
def trained(asks, name):
    keras.utils.clear_session()
    keras.utils.set_random_seed(3)
    make, x, optimizer = CASES[name]
    model = compiled(make(), optimizer)
    errors = []
    for _ in range(2):
        if asks:
            state = random.getstate(), np.random.get_state()[1].tolist()
            function, optimizer, built = model.train_function, model.optimizer, model.built
            values = [variable.value for variable in model.variables]
            nbprof.fits(model, (x, y)).levers
            nbprof.fits(model, x)
            try:
                nbprof.fits(model, (x, y[:5]))
            except NbprofError as error:
                errors.append(str(error))
            assert model.built == built
            assert (random.getstate(), np.random.get_state()[1].tolist()) == state
            assert model.train_function is function and model.optimizer is optimizer
            after = [variable.value for variable in model.variables]
            assert len(after) == len(values)
            assert all(one is other for one, other in zip(after, values))
            assert not tf.config.functions_run_eagerly()
        logs = model.train_on_batch(x, y)
    with tempfile.TemporaryDirectory() as folder:
        path = tf.train.Checkpoint(model=model, optimizer=model.optimizer).save(folder + "/state")
        saved = sorted(name for name, _ in tf.train.list_variables(path))
    names = [variable.path for variable in [*model.variables, *model.optimizer.variables]]
    values = [np.asarray(variable.value).tolist() for variable in model.variables]
    return [float(each) for each in logs], names, values, saved, layers.Dense(1).name, errors


for name in sys.argv[1:]:
    plain, asked = trained(False, name), trained(True, name)
    assert plain[:-1] == asked[:-1], name
print(json.dumps(asked[-1]))
"""
)

ERRORS = (
    MODELS
    + """
def message(*arguments, **options):
    try:
        nbprof.fits(*arguments, **options)
    except NbprofError as error:
        return str(error)


x = rows()
by_op = mlp()
by_op.compile("adam", "mse")
with tf.distribute.MirroredStrategy(["CPU:0"]).scope():
    distributed = compiled(mlp())
print(json.dumps([
    message(mlp(), (x, y)),
    message(by_op, (x, y)),
    message(by_op, (x, y), device="cpu"),
    message(distributed, (x, y)),
    message(compiled(convolutional()), (x, y)),
]))
"""
)


def printed(program, folder, *arguments):
    require("keras", "tensorflow")
    done = run(
        program,
        *arguments,
        cwd=folder,
        KERAS_BACKEND="tensorflow",
        # An allocator that writes its allocations to profiles, as that of a GPU.
        TF_CPU_ALLOCATOR_USE_BFC="true",
    )
    return json.loads(done.stdout.splitlines()[-1])


@pytest.fixture(scope="module")
def peaks(tmp_path_factory):
    return printed(PEAKS, tmp_path_factory.mktemp("keras"))


@pytest.fixture(scope="module")
def levers(tmp_path_factory):
    return printed(LEVERS, tmp_path_factory.mktemp("keras"))


def test_peaks_are_those_of_the_allocator(peaks):
    for name, case in peaks.items():
        assert case["predicted"] == pytest.approx(case["measured"], rel=0.01), name


def test_roles_add_up_to_the_peak(peaks):
    for case in peaks.values():
        roles = case["roles"]
        assert sum(roles.values()) == case["predicted"]
        assert case["batch"] == 64
        assert roles["temporaries"] > 0
    for name in ("wide", "convolutional", "own"):
        case, roles = peaks[name], peaks[name]["roles"]
        assert roles["parameters"] <= case["weights"] < roles["parameters"] + roles["buffers"]
        assert roles["optimizer state"] == case["optimizer"]
    # A tensor that the model refers to is an argument of its step.
    assert peaks["own"]["roles"]["arguments"] == 4 * 300 * 128


def test_the_first_step_has_zeros_that_its_results_cannot_replace(peaks):
    wide = peaks["wide"]
    # Both of Adam's numbers of a weight begin as the same zeros.
    assert wide["predicted"] - wide["trained"] == pytest.approx(4 * 267_010, rel=0.001)


def test_levers_are_what_the_changed_model_needs(levers):
    assert levers["levers"] == ["no change", "mixed_bfloat16", "accumulation of 2 parts"]
    for name in ("mixed_bfloat16", "accumulation"):
        predicted, measured = levers[name]
        assert predicted == pytest.approx(measured, rel=0.01), name
    fitting, failing = levers["limit"]
    assert fitting <= 2**23 < failing


def test_inference_has_no_optimizer(levers):
    predicted, measured = levers["predict"]
    assert predicted == pytest.approx(measured, rel=0.01)
    assert "optimizer state" not in levers["roles of predict"]


def test_frozen_weights_are_parameters(levers):
    frozen, free = levers["frozen"], levers["roles"]
    assert frozen["parameters"] == free["parameters"]
    assert free["optimizer state"] - frozen["optimizer state"] == 2 * 4 * 257 * 256


def test_types_are_those_that_fit_passes_on(levers):
    # Of float64 and int64.
    assert levers["shapes"]["inputs"] == 64 * 256 * 4 + 64 * 8


def test_a_gpu_elsewhere_runs_a_compiled_step(levers):
    fits, assumptions, notes = levers["elsewhere"]
    assert fits
    assert any("unless jit_compile=False" in text for text in assumptions)
    assert any("where the program runs on one" in note for note in notes)


@pytest.mark.parametrize("name", ["convolutional", "own"])
def test_nothing_of_the_person_is_changed(name, tmp_path):
    errors = printed(UNCHANGED, tmp_path, name)
    assert len(errors) == 2
    assert all("cannot be compiled for these shapes" in error for error in errors)


def test_what_cannot_be_predicted_is_an_error(tmp_path):
    messages = printed(ERRORS, tmp_path)
    expected = [
        "call model.compile",
        "runs op by op",
        "runs op by op",
        "tf.distribute",
        "cannot be compiled for these shapes",
    ]
    assert len(messages) == len(expected)
    for message, words in zip(messages, expected, strict=True):
        assert words in message
