"""What custom calls cost: counted where they say it, and not a number where nobody knows."""

from __future__ import annotations

import json
import math

import pytest

from nbprof.hlo.cost import Costs
from nbprof.hlo.hlo import Program
from nbprof.hlo.library_calls import attention_flops, estimate
from nbprof.hlo.shapes import Shape
from tests.support import hlo_programs

BATCH, HEADS, QUERIES, KEYS, HEAD = 2, 4, 8, 16, 32
QKV = f"q = bf16[{BATCH},{QUERIES},{HEADS},{HEAD}]; k = bf16[{BATCH},{KEYS},{HEADS},{HEAD}]; v = bf16[{BATCH},{KEYS},{HEADS},{HEAD}]"
ONE_PRODUCT = 2 * BATCH * HEADS * QUERIES * KEYS * HEAD


def config(**more):
    """The backend config of attention as JAX writes it."""
    shape = {"element_type": "BF16", "dimensions": [str(n) for n in (BATCH, HEADS, QUERIES, KEYS)]}
    told = {
        "intermediate_tensor_shape": shape,
        "mask_type": "NO_MASK",
        "sliding_window_length": 0,
        "max_seg_per_batch": 1,
    }
    return json.dumps({"cudnn_fmha_backend_config": told | {"is_paged_attention": False} | more})


def cost(operands, op):
    program = Program(hlo_programs.program(hlo_programs.single(operands, op)))
    return Costs(program).of_instruction(program.opcodes.index("custom-call"))


def attention(target, **more):
    made = f"(bf16[{BATCH},{QUERIES},{HEADS},{HEAD}], f32[{BATCH},{HEADS},{QUERIES}], u8[4096])"
    return cost(
        QKV,
        f'{made} custom-call(q, k, v), custom_call_target="{target}", backend_config={config(**more)}',
    )


def test_attention_of_cudnn_has_the_flops_of_its_products():
    found = attention("__cudnn$fmhaSoftmax")
    assert found.flops == found.normalized_flops == 2 * ONE_PRODUCT
    # Queries, keys, values, what is made, and what the backward pass needs; no room to work in.
    assert (
        found.bytes
        == 2 * (2 * QUERIES + 2 * KEYS) * BATCH * HEADS * HEAD + 4 * BATCH * HEADS * QUERIES
    )
    assert not found.in_xprof
    assert attention("__cudnn$fmhaSoftmaxBackward").flops == 5 * ONE_PRODUCT


@pytest.mark.parametrize(
    ("more", "pairs"),
    [
        ({"mask_type": "CAUSAL"}, sum(range(1, QUERIES + 1))),
        ({"mask_type": "CAUSAL", "sliding_window_length": 3}, 1 + 2 + 3 * (QUERIES - 2)),
        ({"mask_type": "ALIBI"}, QUERIES * KEYS),
    ],
)
def test_only_pairs_that_the_mask_lets_through_count(more, pairs):
    assert attention("__cudnn$fmhaScaleBiasSoftmax", **more).flops == 2 * ONE_PRODUCT * pairs / (
        QUERIES * KEYS
    )


@pytest.mark.parametrize(
    "more",
    [
        {"mask_type": "PADDING"}, {"mask_type": "PADDING_CAUSAL"}, {"max_seg_per_batch": 4}, {"is_paged_attention": True},
        {"sliding_window_length": 4}, {"intermediate_tensor_shape": {"dimensions": ["2"]}}, {"intermediate_tensor_shape": None},
    ],
)  # fmt: skip
def test_what_depends_on_the_data_is_unknown(more):
    found = attention("__cudnn$fmhaSoftmax", **more)
    assert math.isnan(found.flops)
    assert math.isnan(found.bytes)


def test_attention_needs_its_operands():
    assert (
        attention_flops("__cudnn$fmhaSoftmax", config().encode(), [Shape("bf16", (2, 2))]) is None
    )


def test_a_kernel_of_pallas_costs_what_its_author_stated():
    stated = {
        "custom_call_config": {
            "body": "TUzv",
            "cost_estimate": {"flops": 1000, "transcendentals": 5, "bytes_accessed": "3000"},
        }
    }
    found = cost(
        "a = f32[8]",
        f'f32[8] custom-call(a), custom_call_target="tpu_custom_call", backend_config={json.dumps(stated)}',
    )
    assert (found.flops, found.bytes, found.memory_bytes, found.in_xprof) == (
        1000.0,
        3000.0,
        3000.0,
        False,
    )


@pytest.mark.parametrize(
    "said",
    [
        b"",
        b"[]",
        b"{attn_heads = 16 : i64}",
        b'{"cost_estimate": {"flops": "many"}}',
        b"[" * 100_000,
    ],
)
def test_a_config_that_states_nothing(said):
    assert estimate(said) is None


@pytest.mark.parametrize(
    "target",
    ["te_fused_attn_forward_ffi", "tpu_custom_call", "__gpu$xla.gpu.triton", "lapack_sgetrf_ffi"],
)
def test_what_nobody_knows_is_not_zero(target):
    found = cost("a = f32[8]", f'f32[8] custom-call(a), custom_call_target="{target}"')
    assert all(
        math.isnan(value)
        for value in (found.flops, found.normalized_flops, found.bytes, found.memory_bytes)
    )


def test_what_only_tells_the_compiler_something_costs_nothing():
    found = cost("a = f32[8]", 'f32[8] custom-call(a), custom_call_target="Sharding"')
    assert (found.flops, found.bytes) == (0.0, 0.0)


@pytest.mark.parametrize(
    ("operands", "made", "target"),
    [
        ("a = f32[2,16,16,3]; b = f32[3,3,3,4]", "f32[2,8,8,4]", "convForward"),
        ("a = f32[2,8,8,4]; b = f32[3,3,3,4]", "f32[2,16,16,3]", "convBackwardInput"),
        ("a = f32[2,16,16,3]; b = f32[2,8,8,4]", "f32[3,3,3,4]", "convBackwardFilter"),
    ],
)
def test_gradients_of_a_convolution_take_as_much_as_the_convolution(operands, made, target):
    window = "window={size=3x3 stride=2x2 pad=0_1x0_1}, dim_labels=b01f_01io->b01f"
    found = cost(
        operands,
        f'({made},u8[0]) custom-call(a,b), {window}, custom_call_target="__cudnn${target}"',
    )
    # Of 8 places of each of 3 rows of the kernel one lies on the padding.
    assert found.flops == 2 * 2 * 3 * 4 * (3 * 8 - 1) ** 2
