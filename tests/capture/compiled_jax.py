"""Programs that JAX compiles again, for a known cause each."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
from jax.experimental.layout import Format, Layout
from jax.sharding import AxisType, Mesh, NamedSharding, PartitionSpec

from tests.capture.compiled import Cases

CASES = Cases()


def ones(*shape, dtype="float32"):
    return np.ones(shape, dtype)


@CASES.planted("shape", "shape")
def last_batch():
    @jax.jit
    def step(x):
        return x * 2

    for size in (8, 8, 5, 3, 8):
        step(ones(size, 4))


@CASES.planted("shape")
def shape_in_a_tree():
    @jax.jit
    def step(state):
        return state["w"] + 1

    step({"w": ones(3), "b": ones(2)})
    step({"w": ones(4), "b": ones(2)})


@CASES.planted("dtype")
def other_dtype():
    @jax.jit
    def step(x):
        return x + 1

    step(ones(3))
    step(ones(3, dtype="int32"))


@CASES.planted("weak_type")
def weak_type():
    @jax.jit
    def step(x, lr):
        return x * lr

    step(ones(3), np.float32(0.1))
    step(ones(3), 0.1)


@CASES.planted("python_value", "python_value")
def static_position():
    @functools.partial(jax.jit, static_argnums=1)
    def step(x, n):
        return x * n

    for n in (1, 2, 3, 1):
        step(ones(3), n)


@CASES.planted("python_value")
def static_name():
    @functools.partial(jax.jit, static_argnames="mode")
    def step(x, mode):
        return x * len(mode)

    step(ones(3), mode="train")
    step(ones(3), mode="valid")


@CASES.planted("structure")
def more_keys():
    @jax.jit
    def step(batch):
        return batch["a"]

    step({"a": ones(2)})
    step({"a": ones(2), "b": ones(2)})


@CASES.planted("structure")
def longer_list():
    @jax.jit
    def step(batch):
        return batch[0]

    step([ones(2)])
    step([ones(2), ones(2)])


@CASES.planted("structure")
def tuple_for_list():
    @jax.jit
    def step(batch):
        return batch[0]

    step([ones(2)])
    step((ones(2),))


@CASES.planted("structure")
def more_arguments():
    @jax.jit
    def step(x, y=1.0):
        return x * y

    step(ones(2))
    step(ones(2), ones(2))


@CASES.planted("none_or_value")
def none_or_value():
    @jax.jit
    def step(x, mask):
        return x if mask is None else x * mask

    step(ones(2), None)
    step(ones(2), {"mask": 1.0}["mask"])


@CASES.planted("new_function", "new_function")
def lambda_in_a_loop():
    for _ in range(3):
        jax.jit(lambda x: x + 1)(ones(2))


@CASES.planted("new_function", "new_function")
def closure_in_a_loop():
    for number in range(3):

        def step(x):
            return x * number  # noqa: B023

        jax.jit(step)(ones(2))


@CASES.planted("new_function")
def partial_in_a_loop():
    def step(scale, x):
        return x * scale

    for number in range(2):
        jax.jit(functools.partial(step, number))(ones(2))


@CASES.planted("setting")
def precision():
    @jax.jit
    def step(x):
        return x @ x

    step(ones(2, 2))
    with jax.default_matmul_precision("float32"):
        step(ones(2, 2))


@CASES.planted("placement")
def other_device():
    @jax.jit
    def step(x):
        return x * 3

    for device in jax.devices()[:2]:
        step(jax.device_put(ones(3), device))


@CASES.planted("sharding")
def explicit_sharding():
    mesh = Mesh(np.array(jax.devices()[:2]), ("x",), axis_types=(AxisType.Explicit,))

    @jax.jit
    def step(x):
        return x * 2

    with jax.set_mesh(mesh):
        step(jax.device_put(ones(4), NamedSharding(mesh, PartitionSpec("x"))))
        step(jax.device_put(ones(4), NamedSharding(mesh, PartitionSpec())))


def auto_mesh(*sizes):
    devices = np.array(jax.devices()[: np.prod(sizes)]).reshape(sizes)
    names = ("x", "y")[: len(sizes)]
    return Mesh(devices, names, axis_types=(AxisType.Auto,) * len(sizes))


def sharded(*axes, mesh=None):
    return NamedSharding(mesh or auto_mesh(2), PartitionSpec(*axes))


@CASES.planted("sharding")
def sharded_batch():
    @jax.jit
    def step(w, batch):
        return batch["x"] @ w

    w = jax.device_put(ones(4, 4), sharded())
    for axes in (("x",), ("x",), (None, "x")):
        step(w, {"x": jax.device_put(ones(4, 4), sharded(*axes))})


@CASES.planted("sharding")
def state_that_the_step_shards():
    @jax.jit
    def step(state, batch):
        return state + batch

    state, batch = jnp.asarray(ones(4)), jax.device_put(ones(4), sharded("x"))
    for _ in range(3):
        state = step(state, batch)


@CASES.planted("sharding")
def other_mesh():
    @jax.jit
    def step(x):
        return x * 2

    for mesh in (auto_mesh(2), auto_mesh(1, 2)):
        step(jax.device_put(ones(4), sharded("x", mesh=mesh)))


@CASES.planted("sharding")
def devices_in_another_order():
    @jax.jit
    def step(x):
        return x * 2

    for devices in (jax.devices()[:2], jax.devices()[1::-1]):
        step(jax.device_put(ones(4), sharded("x", mesh=Mesh(np.array(devices), ("x",)))))


@CASES.planted("sharding")
def out_shardings():
    def step(x):
        return x * 2

    jax.jit(step)(ones(4))
    jax.jit(step, out_shardings=sharded("x"))(ones(4))


@CASES.planted("placement")
def committed():
    @jax.jit
    def step(x):
        return x * 2

    step(ones(4))
    step(jax.device_put(ones(4), jax.devices()[0]))


@CASES.planted("donation")
def donated():
    def step(state, batch):
        return {"w": state["w"] + batch}

    jax.jit(step)({"w": ones(4)}, ones(4))
    jax.jit(step, donate_argnums=0)({"w": ones(4)}, ones(4))


@CASES.planted("donation")
def no_longer_donated_by_name():
    def step(state, batch):
        return state + batch

    jax.jit(step, donate_argnames="state")(jnp.asarray(ones(4)), ones(4))
    jax.jit(step)(ones(4), ones(4))


@CASES.planted("layout")
def other_layout():
    @jax.jit
    def step(x):
        return x * 2

    place = jax.sharding.SingleDeviceSharding(jax.devices()[0])
    for order in ((0, 1), (1, 0)):
        step(jax.device_put(ones(4, 2), Format(Layout(order), place)))


@CASES.planted("setting")
def compiler_options():
    def step(x):
        return x * 2

    jax.jit(step)(ones(4))
    jax.jit(step, compiler_options={"xla_embed_ir_in_executable": True})(ones(4))


@CASES.planted()
def control_one_sharding():
    @jax.jit
    def step(state, batch):
        return state + batch

    state = jax.device_put(ones(4), sharded("x"))
    for _ in range(3):
        state = step(state, jax.device_put(ones(4), sharded("x")))


@CASES.planted()
def control_two_shardings_of_two_functions():
    for axes in (("x",), ()):
        # The code is another one, too.
        step = jax.jit((lambda x: x * 2) if axes else (lambda x: x * 3))
        step(jax.device_put(ones(4), sharded(*axes)))


@CASES.planted()
def control_jitted_twice():
    def step(x):
        return x * 2

    for _ in range(3):
        jax.jit(step, donate_argnums=0)(jnp.asarray(ones(4)))


@CASES.planted()
def control_ops_of_the_library():
    for axes in (("x",), ()):
        jnp.linalg.norm(jax.device_put(ones(4), sharded(*axes)))


@CASES.planted()
def control_sharded_gradient():
    @jax.jit
    def loss(x):
        return (x * x).sum()

    x = jax.device_put(ones(4), sharded("x"))
    loss(x)
    jax.grad(loss)(x)


@CASES.planted()
def control_lowered_ahead():
    @jax.jit
    def step(x):
        return x + 1

    step.lower(ones(3)).compile()
    step(ones(3))


@CASES.planted()
def control_one_shape():
    @jax.jit
    def step(x):
        return jnp.sin(x)

    for _ in range(5):
        step(ones(3))


@CASES.planted()
def control_two_functions():
    @jax.jit
    def first(x):
        return x + 1

    @jax.jit
    def second(x):
        return first(x) * 2

    for _ in range(3):
        first(ones(3))
        second(ones(3))


@CASES.planted()
def control_two_lambdas_in_a_line():
    both = jax.jit(lambda x: x + 1), jax.jit(lambda x: x - 1)
    for each in both:
        each(ones(3))


@CASES.planted()
def control_gradient():
    @jax.jit
    def loss(x):
        return (x * x).sum()

    loss(ones(3))
    jax.grad(loss)(ones(3))
    jax.vmap(loss)(ones(2, 3))


@CASES.planted()
def control_methods_of_two_objects():
    class Model:
        def __init__(self):
            self.step = jax.jit(self._step)

        def _step(self, x):
            return x + 1

    for _ in range(2):
        Model().step(ones(3))


@CASES.planted()
def control_eager():
    for _ in range(3):
        jnp.cos(jnp.ones(7)) * 2
