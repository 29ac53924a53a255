"""Memory by role of TensorFlow, whose allocator names the ops that allocated."""

from __future__ import annotations

import json

import pandas as pd
import pytest

from nbprof.analysis.memory.graph_roles import Part, parse
from nbprof.core.memory_roles import IN_USE, NOT_RECORDED, RESERVED, TENSORS, USE_UNKNOWN
from nbprof.profiles.load import load
from nbprof.tools.memory import payload as memory_view
from tests.support.build import profile
from tests.support.profiles import real
from tests.support.xspace import MS, PlaneWriter, xspace

US = 1_000_000
KIB = 1024
EARLIER = 1000 * KIB
STEPS = 3
SENT = "IteratorGetNext/_1:_Send"
COPY = "SameWorkerRecvDone"
LIMIT = 1 << 30


class Training:
    """Steps of 10 ms; ops and events of the allocator follow each other, 10 µs apart."""

    def __init__(
        self, allocator: str = "GPU_0_bfc", records_ops: bool = False, eager: bool = False
    ) -> None:
        self.host = PlaneWriter("/host:CPU")
        self._main: list[bytes] = []
        self._pool: list[bytes] = []
        self._allocator, self._records_ops, self._eager = allocator, records_ops, eager
        self._group, self._time, self._used, self._blocks = 0, 0, EARLIER, 0
        self._sizes: dict[str, int] = {}
        self._addresses: dict[str, int] = {}

    def step(self, number: int) -> None:
        self._group, self._time = number, number * 10 * MS
        self._main.append(
            self.host.event("train", self._time, 9 * MS, step_num=number, _r=1, group_id=number)
        )
        self._pool.append(
            self.host.event("ExecutorState::Process", self._time, 9 * MS, group_id=number)
        )

    def op(
        self, name: str, *events: tuple[object, ...], around: str = "", is_eager: bool | None = None
    ) -> None:
        """An op and what it does; `around` is the event around it, by default the op itself."""
        eager = self._eager if is_eager is None else is_eager
        start = self._time + 10 * US
        self._time = start
        inside: list[bytes] = []
        for event in events:
            inside.append(self._event(name, *event))
        if around or self._records_ops:
            self._pool.append(
                self.host.event(
                    around or name,
                    start,
                    self._time + US - start,
                    group_id=self._group,
                    is_eager=int(eager),
                )
            )
        self._pool += inside

    def free(self, *blocks: str) -> None:
        """Blocks that are let go of after the last op."""
        for block in blocks:
            self._pool.append(self._event("", "-", block))

    def leave(self) -> None:
        """The call that runs the ops is over; the step is not."""
        self._time = self._group * 10 * MS + 9 * MS + 10 * US

    def _event(
        self, op: str, sign: object, block: str, kib: int = 0, region: str = "output"
    ) -> bytes:
        self._time += 2 * US
        stats: dict[str, object] = {}
        if sign == "+":
            self._sizes[block] = kib * KIB
            self._blocks += 1
            self._addresses[block] = self._blocks << 24
            stats = {"tf_op": op, "region_type": region, "data_type": 1, "shape": f"[{kib},256]"}
        elif op:
            stats = {"tf_op": op}
        size = self._sizes[block]
        self._used += size if sign == "+" else -size
        name = "MemoryAllocation" if sign == "+" else "MemoryDeallocation"
        return self.host.event(
            name, self._time, 0, group_id=self._group, allocator_name=self._allocator,
            bytes_reserved=0, bytes_allocated=self._used, bytes_available=LIMIT - self._used,
            peak_bytes_in_use=2 * EARLIER, requested_bytes=size, allocation_bytes=size,
            addr=self._addresses[block], **stats,
        )  # fmt: skip

    def encode(self, *planes: PlaneWriter) -> bytes:
        self.host.line("python", self._main, line_id=1)
        self.host.line("tf_Compute", self._pool, line_id=2)
        return xspace(self.host, *planes)

    def address(self, block: str) -> int:
        return self._addresses[block]


def roles(p) -> pd.DataFrame:
    """Bytes by role after each event."""
    rows = p.memory.roles_over_time
    used = [f"{role.lower().replace(' ', '_')}_bytes" for role in IN_USE]
    assert rows[used].sum(axis=1).tolist() == p.memory.timeline["in_use_bytes"].tolist()
    assert (rows[used] >= 0).all(axis=None)
    return rows


def on_gpu() -> bytes:
    """A step of a convolution and a dense layer, of whose ops only the allocations are recorded."""
    t = Training()
    for step in range(STEPS):
        t.step(step)
        # Of one batch it is unknown which op sent it.
        t.op(COPY, ("+", "batch", 12, "dynamic"), around=SENT if step else "")
        t.op(COPY, ("+", "index", 3, "dynamic"))
        t.op("gradient_tape/net/drop/dropout/Mul", ("+", "mask", 7))
        t.op("net/conv/Relu", ("+", "conv", 64), ("+", "space", 100, "temp"), ("-", "space"))
        t.op("net/drop/dropout/random_uniform/RandomUniform", ("+", "random", 9))
        t.free("random")
        t.op("net/dense/MatMul", ("+", "dense", 16))
        t.op("Cast_3", ("+", "metric", 1))
        t.op("net/dense/Softmax", ("+", "scores", 2))
        t.free("scores")
        t.op("gradient_tape/net/dense/MatMul", ("+", "of_input", 32))
        t.op("gradient_tape/net/dense/MatMul_1", ("+", "of_dense", 48))
        t.free("dense", "of_dense", "metric", "index")
        t.op("gradient_tape/net/conv/Conv2D/Conv2DBackpropInput", ("+", "of_conv", 40))
        t.free("of_input")
        t.op("gradient_tape/net/conv/Conv2D/Conv2DBackpropFilter", ("+", "of_filter", 20))
        t.free("of_conv", "conv", "mask", "batch")
        t.op("Adam/Pow", ("+", "power", 5))
        t.free("power", "of_filter")
        t.op("Adam/update/ResourceApplyAdam", ("+", "work", 11, "temp"), ("-", "work"))
        # The memory of a variable until the next op assigns to it.
        t.op("Adam/AssignVariableOp", ("+", "variable", 13))
        t.free("variable")
    return t.encode()


def test_roles_by_the_order_of_allocations(tmp_path):
    rows = roles(profile(tmp_path, on_gpu()))
    of_step = [rows[rows["step"] == step] for step in range(STEPS)]
    assert [each["inputs_bytes"].max() for each in of_step] == [12 * KIB] * STEPS
    # The convolution, the dense layer and the mask that was made ahead of the backward pass.
    assert rows["activations_bytes"].max() == (64 + 16 + 7) * KIB
    assert rows["gradients_bytes"].max() == 20 * KIB
    assert set(rows["temporaries_bytes"]) == {0, *(size * KIB for size in (100, 9, 40, 5, 11))}
    # What was there before; at most both products of the dense layer, the metric and the index.
    assert rows["unknown_bytes"].min() == EARLIER
    assert rows["unknown_bytes"].max() == EARLIER + (32 + 48 + 1 + 3) * KIB
    assert set(rows["parameters_bytes"]) == {0}


def test_free_memory_of_a_limit_is_not_reserved(tmp_path):
    p = profile(tmp_path, on_gpu())
    assert p.memory.timeline["free_bytes"].notna().all()
    assert p.memory.roles_over_time["reserved_not_allocated_bytes"].isna().all()
    assert RESERVED not in set(p.memory.roles["role"])
    assert p.memory.roles["bytes"].sum() == p.memory.summary["peak_bytes"].iloc[0]
    assert p.memory.roles_reason == ""


def test_the_tab_stacks_the_roles(tmp_path):
    part = memory_view.payload(profile(tmp_path, on_gpu()).run)["ids"][0]["roles"]
    assert {each["role"] for each in part["series"]} == {
        "activations",
        "gradients",
        "inputs",
        "temporaries",
        "unknown",
    }


def with_two_passes() -> bytes:
    """A step with a forward and backward pass of two models each, of which the second is run when
    the activations of the first are freed.
    """
    t = Training()
    for step in range(STEPS):
        t.step(step)
        t.op("first/dense/MatMul", ("+", "first", 16))
        t.op("gradient_tape/first/dense/MatMul", ("+", "of_first", 32))
        t.free("first")
        t.op("second/dense/MatMul", ("+", "second", 64))
        t.op("gradient_tape/second/dense/MatMul", ("+", "of_second", 128))
        t.free("of_first", "second", "of_second")
    return t.encode()


def test_a_second_pass_makes_no_temporaries_of_the_first(tmp_path):
    rows = roles(profile(tmp_path, with_two_passes()))
    assert set(rows["temporaries_bytes"]) == {0}
    assert rows["activations_bytes"].max() == 64 * KIB


def on_cpu(*planes: PlaneWriter, is_verbose: bool = True) -> Training:
    """Steps of which all ops are recorded; each assigns new memory to the weights."""
    t = Training("mklcpu", records_ops=True)
    for step in range(STEPS):
        t.step(step)
        if is_verbose:
            t.op("net/dense/MatMul/ReadVariableOp:ReadVariableOp")
        t.op("net/dense/Relu:_FusedMatMul", ("+", "dense", 300))
        t.op("net/dense/Square:Square", ("+", "square", 310))
        t.op("net/dense/Sum:Sum")
        t.free("square")
        t.op("gradient_tape/net/dense/MatMul/MatMul_1:MatMul", ("+", "of_dense", 320))
        t.free("dense")
        t.op("AddN:AddN", ("+", "total", 330))
        t.free("of_dense")
        t.op("adam/Square_2:Square", ("+", "squared", 340))
        t.free("total")
        t.op("adam/Sqrt_2:Sqrt")
        t.free("squared")
        t.op("adam/AssignSubVariableOp:AssignSubVariableOp", ("+", f"weights {step}", 350, "temp"))
        if step:
            t.free(f"weights {step - 1}")
    return t


def test_roles_by_the_ops_that_free(tmp_path):
    rows = roles(profile(tmp_path, on_cpu().encode()))
    assert set(rows["activations_bytes"]) == {0, 300 * KIB}
    assert set(rows["gradients_bytes"]) == {0, 330 * KIB}
    assert set(rows["temporaries_bytes"]) == {0, 310 * KIB, 320 * KIB, 340 * KIB}
    assert set(rows["unknown_bytes"]) == {EARLIER + size * KIB for size in (0, 350, 700)}


def test_ops_that_free_are_unknown_where_cheap_ones_are_not_recorded(tmp_path):
    rows = roles(profile(tmp_path, on_cpu(is_verbose=False).encode()))
    assert rows["gradients_bytes"].max() == 0
    # In use when the backward pass began.
    assert rows["activations_bytes"].max() == 300 * KIB


def test_what_is_freed_after_the_call_of_the_ops_is_freed_by_none(tmp_path):
    t = Training("mklcpu", records_ops=True)
    for step in range(STEPS):
        t.step(step)
        t.op("Identity:Identity")
        t.op("gradient_tape/net/dense/MatMul:MatMul")
        t.op("net/dense/Relu:Relu", ("+", "within", 300), ("+", "after", 400))
        t.op("net/dense/Sum:Sum")
        t.free("within")
        t.leave()
        t.free("after")
    rows = roles(profile(tmp_path, t.encode()))
    assert set(rows["temporaries_bytes"]) == {0, 300 * KIB}
    assert rows["unknown_bytes"].max() == EARLIER + 400 * KIB


@pytest.mark.parametrize("eager", [True, False])
def test_ops_of_eager_code_free_nothing(tmp_path, eager):
    t = Training("mklcpu", records_ops=True, eager=eager)
    for step in range(STEPS):
        t.step(step)
        # A function of the program as well, which says that cheap ops are recorded.
        t.op("Identity:Identity", is_eager=False)
        t.op("MatMul:MatMul", ("+", "saved", 300))
        t.op("Relu:Relu", ("+", "work", 400), ("-", "work"))
        t.op("MatMul:MatMul")
        t.free("saved")
    rows = roles(profile(tmp_path, t.encode()))
    assert rows["temporaries_bytes"].max() == (400 if eager else 700) * KIB
    assert rows["unknown_bytes"].max() == EARLIER + (300 * KIB if eager else 0)


@pytest.mark.parametrize("scope", ["net/dense/", ""])
def test_without_a_backward_pass_layers_leave_temporaries(tmp_path, scope):
    t = Training()
    for step in range(STEPS):
        t.step(step)
        t.op(f"{scope}Relu", ("+", "result", 300))
        t.free("result")
    rows = profile(tmp_path, t.encode()).memory.roles_over_time
    assert (rows["temporaries_bytes"].max() if len(rows) else 0) == (300 * KIB if scope else 0)


def variables(*rows: list[object]) -> PlaneWriter:
    return PlaneWriter("nbprof", {TENSORS: json.dumps({"tensors": [*rows]})})


def test_variables_that_the_recording_names(tmp_path):
    t = on_cpu()
    last = t.address(f"weights {STEPS - 1}")
    named = variables(
        ["parameters", "cpu", 0, last, 350 * KIB],
        ["optimizer state", "cpu", 0, 1 << 40, 400 * KIB],
        # Of another device.
        ["buffers", "gpu", 0, 3 << 40, 300 * KIB],
    )
    rows = roles(profile(tmp_path, t.encode(named)))
    # Those of the steps before as well, and two of them while one replaces the other.
    assert set(rows["parameters_bytes"]) == {0, 350 * KIB, 700 * KIB}
    assert set(rows["optimizer_state_bytes"]) == {400 * KIB}
    assert rows["buffers_bytes"].max() == 0
    assert set(rows["unknown_bytes"]) == {EARLIER - 400 * KIB}


@pytest.mark.parametrize("allocator", ["GPU_0_bfc", "gpu_async_0"])
def test_variables_on_a_gpu(tmp_path, allocator):
    t = Training(allocator)
    for step in range(STEPS):
        t.step(step)
        t.op("Cast", ("+", f"kept {step}", 8))
    named = variables(
        ["parameters", "gpu", 0, 1 << 40, 256], ["parameters", "gpu", 1, 2 << 40, 512]
    )
    rows = roles(profile(tmp_path, t.encode(named)))
    assert set(rows["parameters_bytes"]) == {256}


def test_only_ops_that_assign_make_earlier_memory_of_a_variable(tmp_path):
    t = Training("mklcpu")
    for step in range(STEPS):
        t.step(step)
        t.op("Fill", ("+", f"filled {step}", 300))
        if step:
            t.free(f"filled {step - 1}")
    named = variables(["parameters", "cpu", 0, t.address(f"filled {STEPS - 1}"), 300 * KIB])
    rows = roles(profile(tmp_path, t.encode(named)))
    assert rows["parameters_bytes"].tolist() == [0] * (2 * STEPS - 3) + [300 * KIB] * 2


@pytest.mark.parametrize(
    "text",
    ["", "{", "7", "[" * 100_000, '{"tensors": 3}', '{"tensors": [["parameters"]]}'],
    ids=range(6),
)
def test_damaged_statements_name_nothing(tmp_path, text):
    plane = PlaneWriter("nbprof", {TENSORS: text})
    rows = roles(profile(tmp_path, on_cpu().encode(plane)))
    assert rows["parameters_bytes"].max() == 0
    assert rows["activations_bytes"].max() == 300 * KIB


def test_the_reason_where_there_are_no_roles(tmp_path):
    t = Training()
    for step in range(STEPS):
        t.step(step)
        t.op("Cast", ("+", f"kept {step}", 8))
    p = profile(tmp_path, t.encode())
    assert not len(p.memory.roles)
    assert p.memory.roles_reason == USE_UNKNOWN
    p = profile(tmp_path, Training().encode(), "host-b")
    assert p.memory.roles_reason == NOT_RECORDED


@pytest.mark.parametrize(
    ("name", "part", "path"),
    [
        ("StatefulPartitionedCall/net/dense/MatMul", Part.FORWARD, "net/dense/MatMul"),
        ("replica_1/net/dense/MatMul", Part.FORWARD, "net/dense/MatMul"),
        ("gradient_tape/replica_1/net/dense/MatMul", Part.BACKWARD, "net/dense/MatMul"),
        ("training/Adam/gradients/dense/MatMul_grad/MatMul", Part.BACKWARD, None),
        ("gradient_tape/a/ArithmeticOptimizer/Cast", Part.BACKWARD, "a/Cast"),
        ("StatefulPartitionedCall/adam/Sqrt_2", Part.OPTIMIZER, "adam/Sqrt_2"),
        ("sgd_4_1/Mul", Part.OPTIMIZER, None),
        ("loss/SparseSoftmaxCrossEntropyWithLogits", Part.FORWARD, None),
        ("RMSprop/RMSprop/update/ResourceApplyRMSProp", Part.OPTIMIZER, None),
        ("net/adam_layer/MatMul", Part.FORWARD, "net/adam_layer/MatMul"),
        ("CollectiveReduceV2_3", Part.COLLECTIVE, "CollectiveReduceV2_3"),
        ("MultiDeviceIteratorGetNextFromShard", Part.INPUT, None),
        ("StatefulPartitionedCall", Part.NONE, ""),
        ("__inference_train_step_12", Part.NONE, ""),
        ("SameWorkerRecvDone", Part.COPY, None),
        ("", Part.NONE, ""),
    ],
)
def test_parts_of_a_step_by_the_names_of_ops(name, part, path):
    op = parse(name)
    assert op.part == part
    assert path is None or op.path == path


@pytest.mark.parametrize("batch", [8, 64, 512])
def test_activations_of_a_real_recording_are_those_of_its_layers(batch):
    """The layers' results in float32, or in float16 with mixed precision."""
    p = load(real(f"tf-gpu/rtx5000-cnn-batch{batch}"))
    rows = p.memory.roles_over_time
    rows = rows[rows["memory_id"] == "GPU_0_bfc"]
    # Convolutions, poolings, the dense layer and the input that the first convolution reads.
    sizes = [30 * 30 * 32, 15 * 15 * 32, 13 * 13 * 64, 6 * 6 * 64, 4 * 4 * 64, 64, 32 * 32 * 3]
    size = 2
    if batch == 8:
        # The layout of the last convolution's result is another than that of the dense layer.
        size, sizes = 4, [*sizes, 4 * 4 * 64]
    expected = batch * size * sum(sizes)
    # Copies of weights in float16 come on top, and what the allocator rounds up.
    assert expected <= rows["activations_bytes"].max() < 1.15 * expected


@pytest.mark.parametrize(
    ("name", "assigns"),
    [
        ("adam/AssignSubVariableOp_8", True),
        ("Adam/update_3/ResourceApplyAdam", True),
        ("adam/ResourceScatterSub", True),
        ("net/embedding/ResourceGather", False),
        ("loss/SparseSoftmaxCrossEntropyWithLogits", False),
    ],
)
def test_ops_that_assign(name, assigns):
    assert parse(name).assigns == assigns
