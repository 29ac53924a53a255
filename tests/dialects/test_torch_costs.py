"""What ops of PyTorch compute and move, beside `torch.utils.flop_counter` and the tensors
themselves.
"""

from __future__ import annotations

import json
import random
from collections import Counter

import pytest

torch = pytest.importorskip("torch")

from torch.nn import functional as F  # noqa: E402
from torch.utils.flop_counter import FlopCounterMode, flop_registry  # noqa: E402

from nbprof.dialects import torch_costs  # noqa: E402
from tests.support.torch_calls import Calls  # noqa: E402

aten = torch.ops.aten


def of_pytorch(run):
    """FLOPs by op as PyTorch counts them, and the calls that were made."""
    calls, counter = Calls(), FlopCounterMode(display=False)
    with torch.device("meta"), counter, calls:
        run()
    return {
        str(op).replace(".", "::"): flops
        for op, flops in counter.get_flop_counts()["Global"].items()
    }, calls.seen


def of_ours(seen):
    """The same by our formulas; an op without one is not in it."""
    out = Counter()
    for name, said, _, _ in seen:
        if torch_costs.kind(name) in torch_costs.PRODUCTS:
            out[name] += torch_costs.cost(name, *said).flops
    return out


def products(rng):
    """Matrix products of random sizes."""
    b, m, k, n = (rng.randint(1, 40) for _ in range(4))
    x, w, many = torch.empty(m, k), torch.empty(k, n), torch.empty(b, m, k)
    torch.mm(x, w)
    torch.addmm(torch.empty(n), x, w)
    torch.bmm(many, torch.empty(b, k, n))
    torch.baddbmm(torch.empty(b, m, n), many, torch.empty(b, k, n))
    F.linear(many, torch.empty(n, k), torch.empty(n))
    eight = (
        torch.empty(16 * m, 16 * k, dtype=torch.float8_e4m3fn),
        torch.empty(16 * n, 16 * k, dtype=torch.float8_e4m3fn).t(),
    )
    torch._scaled_mm(*eight, torch.ones(()), torch.ones(()), out_dtype=torch.bfloat16)


def convolutions(rng):
    """Convolutions and transposed ones of one to three dimensions, forward and backward."""
    rank, batch, ins, outs = (
        rng.randint(1, 3),
        rng.randint(1, 4),
        rng.randint(1, 6),
        rng.randint(1, 6),
    )
    kernel = [rng.randint(1, 3) for _ in range(rank)]
    more = {
        "stride": rng.randint(1, 2),
        "padding": rng.randint(0, 1),
        "dilation": rng.randint(1, 2),
    }
    x = torch.empty(
        batch, ins, *(rng.randint(6, 9) for _ in range(rank)), requires_grad=rng.random() < 0.7
    )
    if rng.random() < 0.5:
        y = getattr(F, f"conv{rank}d")(
            x,
            torch.empty(outs, ins, *kernel, requires_grad=True),
            torch.empty(outs, requires_grad=True),
            **more,
        )
    else:
        y = getattr(F, f"conv_transpose{rank}d")(
            x, torch.empty(ins, outs, *kernel, requires_grad=True), **more
        )
    y.sum().backward()
    sizes = [[more[name]] * rank for name in ("stride", "padding", "dilation")]
    aten._convolution(
        x.detach(),
        torch.empty(outs, ins, *kernel),
        None,
        *sizes,
        False,
        [0] * rank,
        1,
        False,
        False,
        True,
        True,
    )


def attentions(rng):
    """The kernels of scaled dot product attention, also with fewer heads of keys."""
    b, heads, length, keys, depth, wide = (rng.randint(1, 6) for _ in range(6))
    q, out = (
        torch.empty(b, 2 * heads, length, 8 * depth),
        torch.empty(b, 2 * heads, length, 8 * wide),
    )
    k, v = torch.empty(b, heads, keys, 8 * depth), torch.empty(b, heads, keys, 8 * wide)
    aten._scaled_dot_product_efficient_attention(
        q, k.repeat(1, 2, 1, 1), v.repeat(1, 2, 1, 1), None, True
    )
    same = torch.empty(b, 2 * heads, keys, 8 * depth)
    aten._scaled_dot_product_flash_attention(q, same, same)
    sizes = (
        torch.empty(b, 2 * heads, length),
        None,
        None,
        length,
        keys,
        0.0,
        False,
        torch.empty(2),
        torch.empty(()),
    )
    aten._scaled_dot_product_flash_attention_backward(
        torch.empty_like(q), q, same, same, torch.empty_like(q), *sizes
    )
    seeds = (
        torch.empty(b, 2 * heads, length),
        torch.empty(()),
        torch.empty(()),
        0.0,
        [True, True, True, False],
    )
    wide_k, wide_v = k.repeat(1, 2, 1, 1), v.repeat(1, 2, 1, 1)
    aten._scaled_dot_product_efficient_attention_backward(out, q, wide_k, wide_v, None, out, *seeds)
    aten._scaled_dot_product_cudnn_attention(q, wide_k, wide_v, None, True)
    aten._scaled_dot_product_cudnn_attention_backward(
        out, q, wide_k, wide_v, out, *on_cudnn(b, 2 * heads, length, keys)
    )


def on_cudnn(batch, heads, length, keys):
    """What the backward pass of cuDNN's attention is told beside queries, keys, values and
    output.
    """
    none = torch.empty(0)
    return (
        torch.empty(batch, heads, length),
        torch.empty(()),
        torch.empty(()),
        none,
        none,
        none,
        length,
        keys,
        0.0,
        False,
    )


@pytest.mark.parametrize("run", [products, convolutions, attentions])
@pytest.mark.parametrize("seed", range(6))
def test_flops_are_those_of_pytorch(run, seed):
    theirs, seen = of_pytorch(lambda: run(random.Random(seed)))
    ours = of_ours(seen)
    assert theirs
    assert {name: ours[name] for name in theirs} == theirs
    assert {name for name in ours if name not in theirs} <= {"aten::linear"}


def test_each_op_that_pytorch_counts_has_a_formula():
    """`flex_attention` is no op of a trace: it runs as a kernel of Triton, without shapes."""
    counted = {str(op).replace(".", "::") for op in flop_registry if str(op).startswith("aten.")}
    assert len(counted) >= 21
    assert {name for name in counted if torch_costs.kind(name) not in torch_costs.PRODUCTS} == set()


@pytest.mark.parametrize("packed", [False, True])
def test_the_backward_pass_of_cudnn_by_its_own_name(packed):
    """Where sequences are packed, their lengths are values of a tensor that the trace does not
    have.
    """
    shape, types = [2, 4, 6, 8], ["c10::Half"] * 9
    dims = [shape] * 5 + [[2, 4, 6], [], [], [], *([[3]] * 2 if packed else [[], []])]
    types += ["int"] * 2 if packed else ["", ""]
    strides = [[192, 48, 8, 1]] * 5 + [[24, 6, 1]] + [[]] * 5
    said = (json.dumps(dims), json.dumps(types), json.dumps(strides), json.dumps([""] * 11))
    cost = torch_costs.cost("aten::_cudnn_attention_backward", *said)
    if packed:
        assert cost is None
    else:
        assert cost == torch_costs.cost("aten::_scaled_dot_product_cudnn_attention_backward", *said)
        # Five products, of 2 * 2 * 4 * 6 * 6 * 8 each.
        assert cost.flops == 5 * 2 * 2 * 4 * 6 * 6 * 8


@pytest.mark.parametrize("groups", [2, 4])
def test_the_weight_gradient_of_groups_is_not_that_of_all_pairs_of_channels(groups):
    def run():
        x = torch.empty(2, 8, 6, 6, requires_grad=False)
        F.conv2d(
            x, torch.empty(8, 8 // groups, 3, 3, requires_grad=True), groups=groups
        ).sum().backward()

    theirs, seen = of_pytorch(run)
    ours = of_ours(seen)
    assert ours["aten::convolution"] == theirs["aten::convolution"]
    assert ours["aten::convolution_backward"] * groups == theirs["aten::convolution_backward"]
    # As much as the forward pass: each weight meets the same values.
    assert ours["aten::convolution_backward"] == ours["aten::convolution"]


def bodies():
    """Ops of each kind."""
    x = torch.empty(4, 8, 6, 6, dtype=torch.bfloat16)
    flat, wide, ids = (
        torch.empty(32, 48),
        torch.empty(32, 48, dtype=torch.float64),
        torch.empty(32, dtype=torch.int64),
    )
    mask = flat > 0
    for op in (torch.exp, torch.relu, torch.sigmoid, F.gelu, F.silu, torch.neg, torch.isnan):
        op(flat)
    for op in (
        torch.add,
        torch.sub,
        torch.mul,
        torch.div,
        torch.maximum,
        torch.pow,
        torch.eq,
        torch.lt,
    ):
        op(flat, flat)
        op(flat, flat[:1])
        op(flat.to(torch.bfloat16), flat)
    (
        flat + 1,
        flat * 0.5,
        flat * wide,
        ids + 1,
        ids * ids,
        flat + torch.ones(()),
        mask & mask,
        flat[:, :1].expand(32, 48) * flat,
    )
    (
        flat.add_(flat),
        flat.mul_(2),
        flat.clamp(0, 1),
        flat.masked_fill(mask, 0.0),
        torch.where(mask, flat, 0.0),
        torch.addcmul(flat, flat, flat),
    )
    torch.lerp(flat, flat, 0.5), torch.add(flat, flat, out=torch.empty_like(flat))
    (
        aten.gelu_backward(flat, flat),
        aten.threshold_backward(flat, flat, 0),
        aten.tanh_backward(flat, flat),
        aten.silu_backward(flat, flat),
    )
    for op in (torch.sum, torch.mean, torch.amax):
        op(x, (2, 3)), op(flat, 1, keepdim=True)
    (
        flat.sum(),
        flat.sum(dtype=torch.float64),
        ids.sum(),
        flat.mean(),
        flat.max(1),
        flat.argmax(1),
        mask.any(1),
        torch.linalg.vector_norm(flat),
    )
    (
        aten._softmax(flat, -1, False),
        aten._log_softmax(flat, 1, False),
        aten._softmax_backward_data(flat, flat, -1, torch.float32),
    )
    aten._log_softmax_backward_data(flat, flat, -1, torch.float32)
    aten.native_layer_norm(flat, [48], torch.empty(48), torch.empty(48), 1e-5)
    rows = torch.empty(32, 1)
    aten.native_layer_norm_backward(
        flat, flat, [48], rows, rows, torch.empty(48), torch.empty(48), [True, True, True]
    )
    f = x.float()
    channel = [torch.empty(8) for _ in range(4)]
    aten.native_batch_norm(f, *channel, True, 0.1, 1e-5)
    aten.native_group_norm(f, None, None, 4, 8, 36, 2, 1e-5)
    (
        F.mse_loss(flat, flat),
        F.mse_loss(flat, flat, reduction="none"),
        aten.mse_loss_backward(torch.empty(()), flat, flat, 1),
    )
    aten.max_pool2d_with_indices(f, [2, 2], [], [1, 1])
    flat.t().clone(), flat.copy_(wide), flat.zero_ and aten.fill_.Scalar(flat, 1.0)
    (
        aten.embedding_dense_backward(flat, ids, 100, -1, False),
        aten.native_dropout(flat, 0.5, True),
        flat.tril(),
    )


# What only writes its tensor reads it not, and a gather reads the rows that it takes.
WRITES = {"aten::copy_", "aten::fill_", "aten::zero_", "aten::tril"}


def test_bytes_are_those_of_the_tensors():
    with torch.device("meta"), Calls() as calls:
        bodies()
    known, wrong = 0, []
    for name, said, read, made in calls.seen:
        kind = torch_costs.kind(name)
        if kind in ("", torch_costs.NOTHING):
            continue
        cost = torch_costs.cost(name, *said)
        if cost is None:
            wrong.append((name, *said))
            continue
        known += 1
        dims, types = json.loads(said[0]), json.loads(said[1])
        # The result of `out=`, and what is only written, are among the inputs, too.
        if name in WRITES or (
            name == "aten::add" and types[-1] == "float" and dims[-1] and len(types) == 4
        ):
            read -= made if name != "aten::tril" else 0
        if cost.bytes != read + made:
            wrong.append((name, *said, cost.bytes, read + made))
    assert not wrong
    assert known > 70


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("aten::nobody_knows", ([[8]], ["float"], [[1]], [""])),
        ("mylib::mm", ([[8, 8], [8, 8]], ["float"] * 2, [[8, 1]] * 2, ["", ""])),
        # No dimensions that fit.
        ("aten::mm", ([[8, 7], [8, 7]], ["float"] * 2, [[7, 1]] * 2, ["", ""])),
        ("aten::mm", ([[8, 8]], ["float"], [[8, 1]], [""])),
        ("aten::add", ([[3], [4], []], ["float", "float", "Scalar"], [[1], [1], []], ["", "", "1"])),
        # Lists of tensors state no type.
        ("aten::cat", ([[[8], [8]], []], ["TensorList", "Scalar"], [[], []], ["", "0"])),
        ("aten::_foreach_add_", ([[[8]], []], ["TensorList", "Scalar"], [[], []], ["", "1"])),
        # Without its arguments the output of a convolution is unknown, and so are the lengths of
        # ragged attention.
        ("aten::cudnn_convolution", ([[1, 3, 8, 8], [4, 3, 3, 3]], ["float", "float"], [], [])),
        ("aten::_flash_attention_forward", ([[9, 2, 8]] * 3 + [[4], [4]], ["c10::Half"] * 3 + ["int"] * 2, [], [])),
        # float32 or float64: the type of a number and that of a tensor of one look alike.
        ("aten::mul", ([[8], []], ["long int", "double"], [[1], []], ["", ""])),
        ("aten::mm", ("no list", ["float"], [], [])),
        ("aten::mm", ([[-1, 2], [2, 3]], ["float", "float"], [], [])),
        ("aten::sum", ([[8, 8], [], [], []], ["float", "ScalarList", "Scalar", ""], [], [])),
    ],
)  # fmt: skip
def test_what_is_not_told_is_unknown(name, said):
    assert torch_costs.cost(name, *(json.dumps(part) if part else "" for part in said)) is None


def test_text_that_is_no_json_is_unknown():
    assert torch_costs.cost("aten::mm", "[[8, 8], [8", '["float", "float"]') is None
    assert torch_costs.cost("aten::mm", "[" * 100_000, '["float"]') is None
    assert torch_costs.cost("aten::mm", "", "") is None


def test_heads_that_lie_behind_the_length_are_taken_for_heads():
    inner = torch_costs.cost(
        "aten::_flash_attention_forward",
        json.dumps([[2, 128, 4, 64]] * 3),
        json.dumps(["c10::Half"] * 3),
    )
    outer = torch_costs.cost(
        "aten::_scaled_dot_product_flash_attention",
        json.dumps([[2, 4, 128, 64]] * 3),
        json.dumps(["c10::Half"] * 3),
    )
    assert inner == outer
    assert outer.flops == 4 * 2 * 4 * 128 * 128 * 64


def test_an_embedding_reads_the_rows_that_it_takes():
    found = torch_costs.cost(
        "aten::embedding", "[[1000, 64], [8, 16], [], [], []]", '["float", "long int", "Scalar", "Scalar", "Scalar"]', "",
        '["", "", "-1", "False", "False"]',
    )  # fmt: skip
    assert found == (0, 8 * 16 * 8 + 2 * 8 * 16 * 64 * 4, "float")


@pytest.mark.parametrize(
    ("dtype", "number", "computed"), [("int", "1.5", "float"), ("int", "-2", "int")]
)
def test_a_python_number_with_a_fraction_makes_integers_floats(dtype, number, computed):
    said = [[8, 8], [], []], [dtype, "Scalar", "Scalar"], [[8, 1], [], []], ["", number, "1"]
    assert torch_costs.cost("aten::add", *map(json.dumps, said)).dtype == computed
