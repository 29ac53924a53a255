"""Programs that `torch.compile` compiles again, for a known cause each."""

import time

import torch
import torch._dynamo

from tests.capture.compiled import Cases

CASES = Cases()
SCALE = 1


def compiled(function, **options):
    # Inductor needs a compiler, and a path without a space.
    return torch.compile(function, backend="eager", **options)


def planted(*expected):
    def add(program):
        def run():
            torch._dynamo.reset()
            program()

        run.__name__ = program.__name__
        return CASES.planted(*expected)(run)

    return add


def ones(*shape, **options):
    return torch.ones(*shape, **options)


@planted("shape")
def last_batch():
    step = compiled(lambda x: x + 1)
    for size in (8, 8, 5, 3):
        step(ones(size, 4))


@planted("shape", "shape")
def not_dynamic():
    step = compiled(lambda x: x + 2, dynamic=False)
    for size in (8, 5, 3):
        step(ones(size))


@planted("shape")
def more_dimensions():
    step = compiled(lambda x: x + 3)
    step(ones(4))
    step(ones(4, 4))


@planted("dtype")
def other_dtype():
    step = compiled(lambda x: x + 4)
    step(ones(3))
    step(ones(3, dtype=torch.int64))


@planted("requires_grad")
def requires_grad():
    step = compiled(lambda x: x + 5)
    step(ones(3))
    step(ones(3, requires_grad=True))


@planted("stride")
def transposed():
    step = compiled(lambda x: x + 6)
    step(ones(4, 4))
    step(ones(4, 4).t())


@planted("python_value", "python_value")
def number_of_a_step():
    step = compiled(lambda x, n: x + n, dynamic=False)
    for n in (3, 4, 5):
        step(ones(3), n)


@planted("python_value")
def learning_rate():
    step = compiled(lambda x, lr: x * lr)
    step(ones(3), 0.1)
    step(ones(3), 0.2)


@planted("python_value")
def mode_by_name():
    def step(x, mode):
        return x + 1 if mode == "train" else x - 1

    step = compiled(step)
    step(ones(3), "train")
    step(ones(3), "valid")


@planted("none_or_value")
def none_or_value():
    def step(x, mask):
        return x + 1 if mask is None else x + mask

    step = compiled(step)
    step(ones(3), None)
    step(ones(3), ones(3))


@planted("structure")
def longer_list():
    step = compiled(lambda rows: sum(rows))
    step([ones(3)] * 2)
    step([ones(3)] * 3)


@planted("structure")
def more_keys():
    step = compiled(lambda batch: sum(batch.values()))
    step({"a": ones(3)})
    step({"a": ones(3), "b": ones(3)})


@planted("type")
def list_for_tuple():
    step = compiled(lambda rows: rows[0] + rows[1])
    step((ones(3), ones(3)))
    step([ones(3), ones(3)])


class Model(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.scale = 1
        self.drop = torch.nn.Dropout()

    def forward(self, x):
        return self.drop(x) * self.scale


@planted("attribute")
def attribute_of_a_module():
    model = Model()
    step = compiled(model)
    step(ones(3))
    model.scale = 2
    step(ones(3))


@planted("training_mode")
def evaluation():
    model = Model()
    step = compiled(model)
    step(ones(3))
    model.eval()
    step(ones(3))


@planted("global")
def global_variable():
    global SCALE
    SCALE = 1
    step = compiled(lambda x: x * SCALE)
    step(ones(3))
    SCALE = 2
    step(ones(3))


@planted("grad_mode")
def without_gradients():
    step = compiled(lambda x: x + 7)
    step(ones(3))
    with torch.no_grad():
        step(ones(3))


@planted("python_value", "python_value")
def closure_in_a_loop():
    def scaled(number):
        def step(x):
            return x * number

        return step

    for number in (2, 3, 4):
        torch.compile(scaled(number), backend="eager", dynamic=False)(ones(3))


@planted("new_function", "new_function")
def defined_by_text():
    code = "def step(x):\n    return x + 8\n"
    for _ in range(3):
        names = {}
        exec(compile(code, __file__, "exec"), names)
        compiled(names["step"])(ones(3))


@planted("graph_break")
def prints():
    def step(x):
        y = x + 1
        print(end="")
        return y * 2

    compiled(step)(ones(3))


@planted("graph_break")
def item():
    def step(x):
        y = x.sum().item()
        return x * y

    step = compiled(step)
    step(ones(3))
    step(ones(3))


@planted("graph_break")
def unsupported_call():
    def step(x):
        y = x + 1
        time.time()
        return y * 2

    compiled(step)(ones(3))


@planted("graph_break")
def branch_on_data():
    def step(x):
        if x.sum() > 0:
            return x + 1
        return x - 1

    compiled(step)(ones(3))


@planted("backend")
def other_backend():
    def step(x):
        return x + 9

    for backend in (lambda graph, inputs: graph.forward, lambda graph, inputs: graph):
        torch.compile(step, backend=backend)(ones(3))


@planted()
def control_one_shape():
    step = compiled(lambda x: x + 10)
    for _ in range(5):
        step(ones(3))


@planted()
def control_two_functions():
    first, second = compiled(lambda x: x + 11), compiled(lambda x: x * 11)
    for _ in range(3):
        first(ones(3))
        second(ones(3))


@planted()
def control_two_models():
    for _ in range(2):
        compiled(torch.nn.Linear(3, 3))(ones(2, 3))


@planted()
def control_caches_cleared():
    def step(x):
        return x + 12

    for _ in range(2):
        compiled(step)(ones(3))
        torch._dynamo.reset()
