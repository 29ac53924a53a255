"""The predicted peak of a Keras model on JAX is that of the step that `fit` compiles."""

from __future__ import annotations

import json

import pytest

from tests.support.profiles import require
from tests.support.programs import run

MODELS = """
import json
import random
import sys

import jax
import jax.numpy as jnp
import keras
import numpy as np
from keras import layers

import nbprof
from nbprof.core.errors import NbprofError


def mlp():
    hidden = [layers.Dense(256, activation="relu") for _ in range(3)]
    return keras.Sequential([*hidden, layers.Dropout(0.1), layers.Dense(10)])


def convolutional():
    inputs = values = keras.Input((16, 16, 3))
    for filters in (8, 16):
        values = layers.Conv2D(filters, 3, padding="same")(values)
        values = layers.ReLU()(layers.BatchNormalization()(values))
    return keras.Model(inputs, layers.Dense(10)(layers.GlobalAveragePooling2D()(values)))


def attention():
    inputs = keras.Input((32,), dtype="int32")
    values = layers.Embedding(500, 32)(inputs)
    seen = layers.MultiHeadAttention(2, 16, dropout=0.1)(values, values)
    values = layers.LayerNormalization()(layers.Add()([values, seen]))
    return keras.Model(inputs, layers.Dense(10)(layers.GlobalAveragePooling1D()(values)))


class Own(keras.Model):
    def __init__(self):
        super().__init__()
        self.first, self.second = layers.Dense(128, activation="gelu"), layers.Dense(10)

    def call(self, x):
        return self.second(self.first(x))


y = np.zeros((64,), "int32")
CASES = {
    "mlp": (mlp, np.ones((64, 256), "float32")),
    "convolutional": (convolutional, np.ones((64, 16, 16, 3), "float32")),
    "attention": (attention, np.ones((64, 32), "int32")),
    "own": (Own, np.ones((64, 128), "float32")),
}


def compiled(model, **options):
    model.compile(
        keras.optimizers.Adam(**options),
        keras.losses.SparseCategoricalCrossentropy(from_logits=True),
        metrics=["accuracy"],
    )
    return model


def bytes_of(variables):
    return sum(variable.value.nbytes for variable in variables)


def own_peak(model, x):
    # After a real step: the memory of the program that it has compiled.
    model.train_on_batch(x, y)
    state = tuple(
        [variable.value for variable in group]
        for group in (
            model.trainable_variables,
            model.non_trainable_variables,
            model.optimizer.variables,
            model.metrics_variables,
        )
    )
    function = model.train_function.__closure__[0].cell_contents
    sizes = function.lower(state, (jnp.asarray(x), jnp.asarray(y), None)).compile()
    sizes = sizes.memory_analysis()
    total = sizes.argument_size_in_bytes + sizes.output_size_in_bytes + sizes.temp_size_in_bytes
    return total - sizes.alias_size_in_bytes + sizes.generated_code_size_in_bytes


def roles_of(fit):
    return {role.value: size for role, size in fit.roles.items()}
"""

PEAKS = (
    MODELS
    + """
found = {}
for name, (make, x) in CASES.items():
    model = compiled(make())
    fit = nbprof.fits(model, (x, y), device="cpu")
    measured = own_peak(model, x)
    found[name] = {
        "predicted": fit.peak_bytes,
        "measured": measured,
        "roles": roles_of(fit),
        "weights": bytes_of(model.weights),
        "optimizer": bytes_of(model.optimizer.variables),
        "batch": fit.batch_size,
    }
# Of a model that has trained.
found["trained"] = nbprof.fits(model, (x, y)).peak_bytes
print(json.dumps(found))
"""
)

LEVERS = (
    MODELS
    + """
x, found = CASES["mlp"][1], {}
model = mlp()
model.layers[0].trainable = False
fit = nbprof.fits(compiled(model), (x, y), device=2**22)
levers = {lever.name: lever for lever in fit.levers_of_step}
found["frozen"] = roles_of(fit)
keras.config.set_dtype_policy("mixed_bfloat16")
model = mlp()
keras.config.set_dtype_policy("float32")
model.layers[0].trainable = False
found["mixed_bfloat16"] = [levers["mixed_bfloat16"].peak(64), own_peak(compiled(model), x)]
model = mlp()
model.layers[0].trainable = False
changed = compiled(model, gradient_accumulation_steps=2)
found["accumulation"] = [levers["accumulation of 2 parts"].peak(64), own_peak(changed, x)]
found["checkpointing"] = levers["gradient checkpointing"].peak(64)
found["notes"] = {name: lever.note for name, lever in levers.items()}
found["limit"] = [levers["no change"].peak(fit.largest_batch + more) for more in (0, 1)]
found["text"] = repr(fit)
named = nbprof.fits(compiled(mlp()), (x, y), device="A100-80GB")
found["named"] = []
for lever in named.levers_of_step:
    if lever.name not in ("no change", "accumulation of 2 parts"):
        try:
            lever.peak(64)
        except NbprofError as error:
            found["named"].append(str(error))
found["roles"] = [roles_of(fit)["inputs"], roles_of(named)]
found["predict"] = roles_of(nbprof.fits(mlp(), x))
struct = jax.ShapeDtypeStruct
shapes = struct((64, 256), np.float64), struct((64,), np.int64)
found["shapes"] = roles_of(nbprof.fits(compiled(mlp()), shapes))
print(json.dumps(found))
"""
)

UNCHANGED = (
    MODELS
    + """
def trained(asks):
    keras.utils.clear_session()
    keras.utils.set_random_seed(3)
    model = compiled(CASES[sys.argv[1]][0]())
    x = CASES[sys.argv[1]][1]
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
            assert "compute_loss_and_updates" not in vars(model)
        logs = model.train_on_batch(x, y)
    names = [variable.path for variable in model.variables]
    values = [np.asarray(variable.value).tolist() for variable in model.variables]
    return [float(each) for each in logs], names, values, layers.Dense(1).name, errors


plain, asked = trained(False), trained(True)
assert plain[:-1] == asked[:-1]
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


x = CASES["mlp"][1]
eager = mlp()
eager.compile("adam", "mse", run_eagerly=True)
print(json.dumps([
    message(mlp(), (x, y)),
    message(compiled(mlp()), (x, y), optimizer="adam"),
    message(compiled(mlp()), x, y),
    message(eager, (x, y)),
    message(compiled(mlp()), (64, 256)),
    message(compiled(mlp()), (x, y, y, y)),
    message(compiled(convolutional()), (x, y)),
    message(compiled(mlp()), (keras.Input((256,)), y)),
]))
"""
)


def printed(program, folder, *arguments):
    require("keras", "jax")
    done = run(program, *arguments, needs="jax", cwd=folder, KERAS_BACKEND="jax")
    return json.loads(done.stdout.splitlines()[-1])


@pytest.fixture(scope="module")
def peaks(tmp_path_factory):
    return printed(PEAKS, tmp_path_factory.mktemp("keras"))


@pytest.fixture(scope="module")
def levers(tmp_path_factory):
    return printed(LEVERS, tmp_path_factory.mktemp("keras"))


@pytest.mark.parametrize("name", ["mlp", "convolutional", "attention", "own"])
def test_the_peak_is_that_of_the_step_that_fit_compiles(peaks, name):
    case = peaks[name]
    assert case["predicted"] == case["measured"]
    assert case["batch"] == 64
    roles = case["roles"]
    assert sum(roles.values()) == case["predicted"]
    # Statistics and seeds are buffers; so are the numbers of the metrics.
    assert roles["parameters"] <= case["weights"] < roles["parameters"] + roles["buffers"]
    assert roles["optimizer state"] == case["optimizer"]
    assert roles["temporaries"] > 0


def test_a_trained_model_needs_as_much(peaks):
    assert peaks["trained"] == peaks["own"]["predicted"]


def test_frozen_weights_are_parameters(levers):
    frozen, free = levers["frozen"], levers["shapes"]
    assert frozen["parameters"] == free["parameters"]
    # Adam keeps two numbers for each number of the layer.
    assert free["optimizer state"] - frozen["optimizer state"] == 2 * 4 * 257 * 256


def test_levers_are_what_the_changed_model_needs(levers):
    for name in ("mixed_bfloat16", "accumulation"):
        predicted, measured = levers[name]
        assert predicted == measured
    assert levers["checkpointing"] > 0
    assert list(levers["notes"]) == [
        "no change",
        "mixed_bfloat16",
        "gradient checkpointing",
        "both",
        "accumulation of 2 parts",
    ]
    assert "gradient_accumulation_steps=2" in levers["notes"]["accumulation of 2 parts"]
    fitting, failing = levers["limit"]
    assert fitting <= 2**22 < failing
    assert "A training step of Sequential of batch 64 needs" in levers["text"]


def test_the_cpu_does_not_answer_for_an_accelerator(levers):
    assert len(levers["named"]) == 3
    assert all("ask where the program runs on one" in error for error in levers["named"])
    # `fit` moves the next batch to an accelerator while a step runs.
    inputs, named = levers["roles"]
    assert named["inputs"] == 2 * inputs


def test_inference_has_no_optimizer(levers):
    roles = levers["predict"]
    assert "optimizer state" not in roles
    assert roles["parameters"] == levers["frozen"]["parameters"]
    assert roles["outputs"] >= 4 * 64 * 10


def test_types_are_those_that_fit_passes_on(levers):
    # Of float64 and int64.
    assert levers["shapes"]["inputs"] == levers["frozen"]["inputs"]


@pytest.mark.parametrize("name", ["convolutional", "own"])
def test_nothing_of_the_person_is_changed(name, tmp_path):
    errors = printed(UNCHANGED, tmp_path, name)
    assert len(errors) == 2
    assert all("cannot be compiled for these shapes" in error for error in errors)


def test_what_cannot_be_predicted_is_an_error(tmp_path):
    messages = printed(ERRORS, tmp_path)
    expected = [
        "call model.compile",
        "those of model.compile",
        "as a tuple",
        "runs op by op",
        "has a int",
        "has 4 parts",
        "cannot be compiled for these shapes",
        "pass sizes, no None",
    ]
    assert len(messages) == len(expected)
    for message, words in zip(messages, expected, strict=True):
        assert words in message
