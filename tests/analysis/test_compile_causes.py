"""Causes of compilations, by the messages of several versions of the frameworks."""

from __future__ import annotations

import pytest

from nbprof.analysis.compiles import table
from nbprof.analysis.compiles.causes import KINDS, cause_of, of_cache_miss, of_guard, of_types
from nbprof.core import compile_times
from nbprof.core.compile_times import Compilation, Compilations

INPUTS = "different input types:\n  * at {}, now {} and before {}"
TREE = "different input pytree:\n  * at input path {}, now {} and before {}, so {}"
STATIC = "<class 'jax._src.tree_util.Static'> with pytree metadata Static(val={})"
CACHE_MISSES = [
    (INPUTS.format("x", "f32[4]", "f32[3]"), "shape", "x", "[3]", "[4]"),
    (INPUTS.format("x", "f32[]", "f32[3]"), "shape", "x", "[3]", "[]"),
    (INPUTS.format("s['w']", "bf16[4,8]", "f32[4,8]"), "dtype", "s['w']", "f32", "bf16"),
    (INPUTS.format("x", "key<fry>[]", "u32[2]"), "dtype", "x", "u32", "key<fry>"),
    (
        INPUTS.format("lr", "f32[]{weak_type=True}", "f32[]{weak_type=False}https://a.b/c#d"),
        *("weak_type", "lr", "an array", "a Python scalar"),
    ),
    (INPUTS.format("x", "f32[4@x]", "f32[4]"), "sharding", "x", "f32[4]", "f32[4@x]"),
    (
        INPUTS.format("x", "f32[4]({Auto: ('x', 'y')})", "f32[4]({})"),
        *("sharding", "x", "f32[4] on no mesh", "f32[4] on mesh(x, y)"),
    ),
    (INPUTS.format("x", "f32[4@x]", "f32[8]"), "shape", "x", "[8]", "[4@x]"),
    (INPUTS.format("x", "Ref{f32[]}", "Ref{f32[]}"), "unknown", "", "", ""),
    ("  * at x, seen f32[3], but now given f32[4]", "shape", "x", "[3]", "[4]"),
    ("  * at x, seen f32[3], but now given i32[3]", "dtype", "x", "f32", "i32"),
    (
        TREE.format("[0][1]", STATIC.format("2"), STATIC.format("1"), "the metadata differ"),
        *("python_value", "argument 2", "1", "2"),
    ),
    # Its end is truncated.
    (
        TREE.format("[1]['m']", STATIC.format("(1, 2)"), STATIC.format("(3, 4)"), "")[:-5],
        *("python_value", "m", "(3, 4)", "(1, 2)"),
    ),
    (
        TREE.format("[0][0]", "<class 'list'>", "<class 'dict'>", "their Python types differ"),
        *("structure", "argument 1", "dict", "list"),
    ),
    (
        TREE.format("[0][0]", "<class 'NoneType'>", "<class 'dict'>", "their Python types differ"),
        *("none_or_value", "argument 1", "dict", "None"),
    ),
    (
        (
            "Tracing context doesn't match, e.g. due to config or context manager.\n"
            "  * jax_enable_x64 differs: now True and before False"
        ),
        *("setting", "jax_enable_x64", "False", "True"),
    ),
    ("Tracing context doesn't match, e.g. due to config.", "unknown", "", "", ""),
    ("Debug info doesn't match.", "unknown", "", "", ""),
    ("cache miss explanation unavailable", "unknown", "", "", ""),
    ("", "unknown", "", "", ""),
]
ON_MESH = "P('x') on mesh(x=2)"
LOWERINGS = [
    ("in_shardings", "x", "P() on mesh(x=2)", ON_MESH, "sharding"),
    ("in_shardings", "x", "uncommitted", ON_MESH, "sharding"),
    ("in_shardings", "x", "cuda:0", ON_MESH, "sharding"),
    ("in_shardings", "x", "cuda:0", "cuda:1", "placement"),
    ("in_shardings", "x", "uncommitted", "cuda:1", "placement"),
    ("out_shardings", "out_shardings", "unspecified", ON_MESH, "sharding"),
    ("donated_invars", "x", "not donated", "donated", "donation"),
    ("in_layouts", "x", "default", "major to minor (1, 0)", "layout"),
    ("inline", "inline", "False", "True", "setting"),
]
GUARDS = [
    ("0/0: tensor 'x' size mismatch at index 1. expected 3, actual 4", "", "shape", "x", "3", "4"),
    ("tensor 'L['x']' rank mismatch. expected 1, actual 2", "", "shape", "L['x']", "1", "2"),
    ("0/1: 2 <= x.size()[0]", "", "shape", "", "", ""),
    ("0/1: x.size()[0] == 4  # in f", "", "shape", "", "", ""),
    (
        "0/0: tensor 'x' dtype mismatch. expected Float, actual Half",
        *("", "dtype", "x", "Float", "Half"),
    ),
    (
        "tensor 'x' requires_grad mismatch. expected requires_grad=1",
        *("", "requires_grad", "x", "True", "False"),
    ),
    ("tensor 'x' stride mismatch at index 0. expected 4, actual 1", "", "stride", "x", "4", "1"),
    (
        (
            "tensor 'x' dispatch key set mismatch. expected DispatchKeySet(CPU, BackendSelect),"
            " actual DispatchKeySet(CUDA, BackendSelect)"
        ),
        *("", "placement", "x"),
        *("DispatchKeySet(CPU, BackendSelect)", "DispatchKeySet(CUDA, BackendSelect)"),
    ),
    (
        (
            "tensor 'x' dispatch key set mismatch. expected DispatchKeySet(CPU, AutogradCPU),"
            " actual DispatchKeySet(CPU)"
        ),
        *("", "unknown", "", "", ""),
    ),
    ("0/0: GLOBAL_STATE changed: grad_mode ", "", "grad_mode", "", "", ""),
    ("0/0: GLOBAL_STATE changed: autocast ", "", "setting", "autocast", "", ""),
    ("0/0: len(rows) == 2   # in f", "3", "structure", "rows", "2", "3"),
    (
        "0/0: lr == 0.1      # return x * lr  # a.py:3 in f",
        "0.2",
        "python_value",
        "lr",
        "0.1",
        "0.2",
    ),
    ("0/0: self.flag == 1  (HINT: an integer)", "", "attribute", "self.flag", "1", ""),
    ("0/0: G['SCALE'] == 1", "2", "global", "SCALE", "1", "2"),
    (
        "0/0: self._modules['d'].training == True",
        *("False", "training_mode", "self._modules['d'].training", "True", "False"),
    ),
    ("0/0: mask is None", "", "none_or_value", "mask", "None", ""),
    (
        "0/0: ___check_type_id(mask, 9), type=<class 'NoneType'>",
        *("", "none_or_value", "mask", "None", ""),
    ),
    ("0/0: ___check_type_id(x, 9), type=<class 'list'>", "", "type", "x", "list", ""),
    ("0/0: ___check_obj_id(optimizer, 140), type=<class 'a.B'>", "", "object", "optimizer", "", ""),
    ("0/0: BACKEND_MATCH failure: different backends", "", "backend", "", "", ""),
    ("0/0: Duplicate tensor found where not expected!", "", "aliasing", "", "", ""),
    ("0/0: not ___dict_contains('b', batch)", "", "structure", "", "", ""),
    ("Unexpected recompilation: runtime guards failed", "", "unknown", "", "", ""),
    ("Unable to find recompilation reasons", "", "unknown", "", "", ""),
]
SPEC = "TensorSpec(shape={}, dtype=tf.{}, name=None)"
TYPES = [
    (SPEC.format("(3,)", "float32"), SPEC.format("(4,)", "float32"), "shape"),
    (SPEC.format("(None,)", "float32"), SPEC.format("(4, 1)", "float32"), "shape"),
    (SPEC.format("(3,)", "float32"), SPEC.format("(3,)", "int32"), "dtype"),
    ("Literal[1]", "Literal[2]", "python_value"),
    ("Literal['a]b']", "Literal[None]", "none_or_value"),
    ("Literal[1]", SPEC.format("()", "int32"), "python_value"),
    ("Weakref[<weakref at 0x1; dead>])", "Weakref[<weakref at 0x2; to 'O'>])", "object"),
    (f"List[{SPEC.format('()', 'int32')}]", "Tuple[]", "structure"),
    (f"List[{SPEC.format('()', 'int32')}]", f"List[{SPEC.format('(1,)', 'int32')}]", "shape"),
    ("Dict[['n', Literal[1]]]", "Dict[['n', Literal[2]]]", "python_value"),
    ("", "Literal[2]", "python_value"),
    ("VariableSpec(shape=(), trainable=True)", "VariableSpec(shape=(1,))", "structure"),
]


@pytest.mark.parametrize(("text", "kind", "argument", "before", "after"), CACHE_MISSES)
def test_messages_of_jax(text, kind, argument, before, after):
    assert of_cache_miss(text)[:4] == (kind, argument, before, after)


@pytest.mark.parametrize(("parameter", "argument", "before", "now", "kind"), LOWERINGS)
def test_what_jax_lowers_in_another_way(parameter, argument, before, now, kind):
    row = Compilation(
        *("jax", "f"), state="again", reason=parameter, argument=argument, before=before, after=now
    )
    cause = cause_of(row)
    assert cause[:4] == (kind, argument, before, now)
    assert kind in KINDS
    for text in (argument, before, now):
        assert text in cause.why


@pytest.mark.parametrize(("text", "now", "kind", "argument", "before", "after"), GUARDS)
def test_guards_of_dynamo(text, now, kind, argument, before, after):
    assert of_guard(text, now)[:4] == (kind, argument, before, after)


@pytest.mark.parametrize(("before", "after", "kind"), TYPES)
def test_types_of_tensorflow(before, after, kind):
    cause = of_types("x", before, after)
    assert cause.kind == kind
    assert cause.kind == "unknown" or cause.why


def test_a_cause_has_a_sentence_and_unknown_has_none():
    for text, *_ in CACHE_MISSES:
        cause = of_cache_miss(text)
        assert cause.kind in KINDS
        assert bool(cause.why) == (cause.kind != "unknown")
    for text, now, *_ in GUARDS:
        cause = of_guard(text, now)
        assert cause.kind in KINDS
        assert bool(cause.why) == (cause.kind != "unknown")


def test_states_without_a_reason():
    kinds = {
        state: cause_of(Compilation("jax", "f", state=state)).kind for state in compile_times.STATES
    }
    assert kinds == {
        "first": "first_call",
        "again": "unknown",
        "made_again": "new_function",
        "redefined": "redefined",
        "placed": "placement",
        "": "unknown",
    }


def test_the_rest_of_a_function_after_its_graph_breaks():
    name = "torch_dynamo_resume_in_step_at_12"
    rows = (
        Compilation("torch", "step", "a.py", 10, 5, 1, breaks="a.py:12: it prints", state="first"),
        Compilation("torch", name, "a.py", 12, 7, 1, state="first"),
        Compilation("torch", name, "b.py", 12, 8, 1, state="first"),
        Compilation("torch", name, "a.py", 12, 9, 1, state="again", reason="0/0: n == 1"),
    )
    frame = table.frame(Compilations(rows), {})
    assert list(frame["function"]) == ["step", *["step, from line 12 on"] * 3]
    assert list(frame["cause"]) == ["first_call", "graph_break", "graph_break", "python_value"]
    assert frame["why"][1] == "the graph breaks in line 12: it prints"
    assert frame["why"][2] == "the graph breaks in line 12"


def test_the_step_of_a_compilation():
    """The marked step, or else the recorded one that ran."""
    steps = table.RecordedSteps(*([4, 5], [100, 200], [150, 250]))
    rows = [
        Compilation("jax", "f", start_ns=start, step=step)
        for start, step in ((120, 9), (120, 0), (160, 0), (210, 0), (20, 0))
    ]
    frame = table.frame(Compilations(tuple(rows)), {}, steps)
    # In the order of their starts.
    assert frame["step"].fillna(0).tolist() == [0, 9, 4, 0, 5]


def test_stored_rows():
    row = Compilation("torch", "f", "a b.py", 3, 10, 20, 2, 5, None, 7, state="again", reason="r")
    stored = compile_times.packed([row], 5, 2)
    assert compile_times.unpacked(stored) == Compilations((row,), 5, 2)
    assert compile_times.packed([], 5, 0) == {}
    assert compile_times.unpacked({**stored, "version": 0}) == Compilations()
    assert compile_times.unpacked(None) == Compilations()
    damaged = [
        *({}, "text", {"framework": 3}, {"framework": "jax", "start_ns": -1}),
        *({"framework": "jax", "other": 1}, {"framework": "jax", "state": "new"}),
        {"framework": "jax", "reason": "x" * 1000},
    ]
    for values in damaged:
        assert compile_times.unpacked({**stored, "rows": [values]}).rows == ()


def test_a_frame_without_compilations():
    assert len(table.frame(Compilations(), {})) == 0
