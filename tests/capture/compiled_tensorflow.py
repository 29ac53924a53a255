"""Programs that `tf.function` traces again, for a known cause each."""

import tensorflow as tf

from tests.capture.compiled import Cases

CASES = Cases()


def ones(*shape, dtype="float32"):
    return tf.ones(shape, dtype)


@CASES.planted("shape", "shape")
def last_batch():
    @tf.function
    def step(x):
        return x + 1

    for size in (8, 8, 5, 3, 8):
        step(ones(size, 4))


@CASES.planted("dtype")
def other_dtype():
    @tf.function
    def step(x):
        return x + 1

    step(ones(3))
    step(ones(3, dtype="int32"))


@CASES.planted("python_value", "python_value")
def python_number():
    @tf.function
    def step(x, n):
        return x * tf.cast(n, x.dtype)

    for n in (1, 2, 3, 1):
        step(ones(3), n)


@CASES.planted("none_or_value")
def none_or_value():
    @tf.function
    def step(x, mask=None):
        return x if mask is None else x * mask

    step(ones(3))
    step(ones(3), ones(3))


@CASES.planted("object")
def new_object():
    class Settings:
        scale = 1.0

    @tf.function
    def step(x, settings):
        return x * settings.scale

    both = Settings(), Settings()
    for each in both:
        step(ones(3), each)


@CASES.planted("new_function", "new_function")
def made_in_a_loop():
    for _ in range(3):
        tf.function(lambda x: x + 1)(ones(3))


@CASES.planted("structure")
def more_keys():
    @tf.function
    def step(batch):
        return batch["a"]

    step({"a": ones(3)})
    step({"a": ones(3), "b": ones(3)})


@CASES.planted("structure")
def longer_list():
    @tf.function
    def step(batch):
        return batch[0]

    step([ones(3)])
    step([ones(3), ones(3)])


@CASES.planted("shape")
def shape_in_a_tree():
    @tf.function
    def step(batch):
        return batch["a"]["b"]

    step({"a": {"b": ones(3), "c": ones(2)}})
    step({"a": {"b": ones(4), "c": ones(2)}})


@CASES.planted("python_value")
def tensor_for_number():
    @tf.function
    def step(x, n):
        return x * tf.cast(n, x.dtype)

    step(ones(3), tf.constant(1))
    step(ones(3), 1)


@CASES.planted()
def control_one_shape():
    @tf.function
    def step(x):
        return x + 1

    for _ in range(5):
        step(ones(3))


@CASES.planted()
def control_two_functions():
    @tf.function
    def first(x):
        return x + 1

    @tf.function
    def second(x):
        return first(x) * 2

    for _ in range(3):
        first(ones(3))
        second(ones(3))


@CASES.planted()
def control_variables():
    class Model(tf.Module):
        def __init__(self):
            super().__init__()
            self.weight = None

        @tf.function
        def __call__(self, x):
            if self.weight is None:
                self.weight = tf.Variable(2.0)
            return x * self.weight

    for model in (Model(), Model()):
        model(ones(3))
        model(ones(3))
