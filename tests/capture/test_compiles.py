"""What a recording knows of compilations: their causes, and that everything is given back."""

from __future__ import annotations

import json
from textwrap import dedent

import pytest

from nbprof.core.compile_times import MOST
from tests.support.programs import run

NAMED = 0.95
"""Share of planted causes that must be named."""
FRAMEWORKS = {
    "jax": {"XLA_FLAGS": "--xla_force_host_platform_device_count=2"},
    "torch": {},
    "tensorflow": {},
}


@pytest.fixture(scope="module", params=FRAMEWORKS)
def found(request):
    name = request.param
    code = f"from tests.capture.compiled import report\nfrom tests.capture.compiled_{name} import CASES\nreport(CASES)"
    done = run(code, needs=name, **FRAMEWORKS[name])
    return json.loads(done.stdout.splitlines()[-1]), done


def _causes(rows):
    return [row["cause"] for row in rows if row["cause"] not in ("first_call", "unknown")]


def test_planted_causes(found):
    cases, _ = found
    wrong = {}
    planted = {name: case for name, case in cases.items() if case["expected"]}
    for name, case in planted.items():
        if _causes(case["rows"]) != case["expected"]:
            wrong[name] = [(row["function"], row["cause"], row["why"]) for row in case["rows"]]
    assert len(wrong) <= (1 - NAMED) * len(planted), wrong


def test_controls(found):
    cases, _ = found
    for name, case in cases.items():
        if not case["expected"]:
            assert case["rows"], name
            assert not _causes(case["rows"]), (name, case["rows"])


def test_values_and_times(found):
    """Times are those of the framework, and values before and after are in the sentence."""
    cases, _ = found
    rows = [row for case in cases.values() for row in case["rows"]]
    assert all(row["duration_ms"] > 0 and row["start_ms"] >= 0 for row in rows)
    assert all(row["step"] == 3 for row in rows)
    for row in rows:
        phases = [row[phase] or 0 for phase in ("trace_ms", "lower_ms", "compile_ms")]
        assert sum(phases) <= row["duration_ms"] * 1.001 + 0.01, row
    shapes = [row for row in cases["last_batch"]["rows"] if row["cause"] == "shape"]
    assert "5" in shapes[0]["after"]
    assert "8" in shapes[0]["before"]
    assert shapes[0]["argument"] in shapes[0]["why"]
    assert (
        f"compiled_{rows[0]['framework'].lower().replace('pytorch', 'torch')}" in shapes[0]["where"]
    )


LOWERED = {
    "sharded_batch": ("batch['x']", "P('x') on mesh(x=2)", "P(None, 'x') on mesh(x=2)"),
    "devices_in_another_order": (
        "x",
        "P('x') on mesh(x=2) of devices 0, 1",
        "P('x') on mesh(x=2) of devices 1, 0",
    ),
    "out_shardings": ("out_shardings", "unspecified", "P('x') on mesh(x=2)"),
    "other_device": ("x", "cpu:0", "cpu:1"),
    "committed": ("x", "uncommitted", "cpu:0"),
    "donated": ("state['w']", "not donated", "donated"),
    "no_longer_donated_by_name": ("state", "donated", "not donated"),
    "other_layout": ("x", "default", "major to minor (1, 0)"),
}


def test_values_of_what_is_lowered_again(found):
    cases, _ = found
    if "donated" not in cases:
        pytest.skip("only JAX lowers a trace again")
    for name, expected in LOWERED.items():
        [again] = [row for row in cases[name]["rows"] if row["cause"] == cases[name]["expected"][0]]
        assert (again["argument"], again["before"], again["after"]) == expected
        assert "compiled_jax.py:" in again["where"]
        assert again["function"] == "step"


def test_reasons_of_graph_breaks(found):
    cases, _ = found
    if "prints" not in cases:
        pytest.skip("only PyTorch's graphs break")
    reasons = {
        "prints": "print",
        "item": "item",
        "unsupported_call": "time",
        "branch_on_data": "jump",
    }
    for name, word in reasons.items():
        first, rest = cases[name]["rows"]
        assert word in rest["why"], rest
        assert word in first["graph_breaks"], first


def test_nothing_is_printed(found):
    """Neither explanations of JAX nor anything of ours reaches the person."""
    _, done = found
    assert "CACHE MISS" not in done.stderr + done.stdout
    # A warning of a library may have a path with this word.
    assert "nbprof:" not in done.stderr


GIVEN_BACK = {
    "jax": """
        import logging
        import jax, numpy as np
        from jax._src import config, linear_util, monitoring, util
        from jax._src.interpreters import partial_eval

        def state():
            loggers = [partial_eval.logger, logging.getLogger("jax._src.pjit")]
            return [
                util.config is config,
                getattr(linear_util, "config", config) is config,
                monitoring.get_event_duration_listeners(),
                monitoring.get_event_listeners(),
                [list(each.filters) for each in loggers],
                [(each.level, each.propagate, list(each.handlers)) for each in loggers],
                config.explain_cache_misses.value,
                set(partial_eval.callsites_with_tracing_cache_miss),
            ]

        def program():
            for size in (1, 2):
                jax.jit(lambda x: x + size)(np.ones(size))
    """,
    "torch": """
        import torch, torch._dynamo
        from torch._dynamo import callback, utils

        def state():
            return [
                utils.log_compilation_event,
                list(callback.callback_handler.start_callbacks),
                torch._logging._internal.log_state.is_artifact_enabled("recompiles"),
            ]

        def program():
            torch.compile(lambda x: x + 1, backend="eager")(torch.ones(2))
    """,
    "tensorflow": """
        import tensorflow as tf
        from tensorflow.python.eager.polymorphic_function import tracing_compilation, transform

        def state():
            return [
                tracing_compilation._create_concrete_function,
                list(transform.CONCRETE_FUNCTION_CALLBACKS),
            ]

        def program():
            tf.function(lambda x: x + 1)(tf.ones(2))
    """,
}


@pytest.mark.parametrize("name", FRAMEWORKS)
def test_everything_is_given_back(name):
    code = dedent(GIVEN_BACK[name]) + dedent("""
        import json
        import nbprof

        before = state()
        with nbprof.profile(backend="python", save=False) as p:
            assert state() != before
            program()
        assert state() == before
        try:
            with nbprof.profile(backend="python", save=False):
                program()
                raise ValueError("of the cell")
        except ValueError:
            pass
        assert state() == before
        print(p.compiles.to_json(orient="records"))
    """)
    rows = json.loads(run(code, needs=name).stdout.splitlines()[-1])
    assert rows[0]["cause"] == "first_call", rows


def test_explanations_that_the_person_asked_for_are_logged():
    """Asked for before the cell or in it, and not once it is switched off again."""
    done = run(
        """
        import logging, sys
        import jax, numpy as np
        import nbprof

        logging.basicConfig(stream=sys.stdout, format="%(message)s")

        def compiles(word):
            print(word)
            jax.jit(lambda x: x + 1)(np.ones(2))

        with nbprof.profile(backend="python", save=False) as p:
            compiles("quiet")
            jax.config.update("jax_explain_cache_misses", True)
            compiles("asked")
            jax.config.update("jax_explain_cache_misses", False)
            compiles("quiet again")
        assert jax.config.jax_explain_cache_misses is False
        jax.config.update("jax_explain_cache_misses", True)
        with nbprof.profile(backend="python", save=False):
            compiles("asked before")
        compiles("after")
        assert jax.config.jax_explain_cache_misses is True
        print(list(p.compiles.cause))
        """,
        needs="jax",
    )
    said = [line.split(" at ")[0] for line in done.stdout.splitlines() if line and line[0] != " "]
    miss = "TRACING CACHE MISS"
    assert said[:-1] == [
        *("quiet", "asked", miss, "quiet again"),
        *("asked before", miss, "after", miss),
    ], done.stdout
    assert said[-1] == "['first_call', 'new_function', 'new_function']"


def test_explaining_is_bounded():
    """Comparing with all earlier keys grows with their number: it ends, and compiling goes on."""
    done = run(
        """
        import json, sys
        from unittest import mock
        import jax, numpy as np
        from jax._src.interpreters import partial_eval
        from nbprof.capture import compiles
        from nbprof.capture.compiles import jax as watched
        from nbprof.capture.compiles.hooks import hook
        from nbprof.capture.compiles.recorder import Compiles
        from nbprof.capture.patches import Patches
        from nbprof.core import compile_times

        step = jax.jit(lambda x: x + 1)
        compared = 0
        original = partial_eval.diff_tracing_cache_keys

        def diff(*keys):
            global compared
            compared += 1
            return original(*keys)

        patches, watch = Patches(), Compiles(lambda: None)
        patches.replace(partial_eval, "diff_tracing_cache_keys", diff)
        hook(sys.modules[compiles.JAX], patches, watch)
        # By number alone, however fast this machine is.
        with mock.patch.multiple(watched, MOST_EXPLAINED=20, _ALWAYS_EXPLAINED=20):
            with mock.patch.object(compile_times, "MOST", 30):
                for size in range(1, 41):
                    step(np.ones(size))
                stored = watch.packed()
        patches.restore()
        rows = compile_times.unpacked(stored).rows
        states = [row.state for row in rows]
        print(json.dumps([compared, states, stored["left_out"]]))
        """,
        needs="jax",
    )
    compared, states, left_out = json.loads(done.stdout)
    assert compared <= 20 * 19 / 2
    assert states == ["first"] + ["again"] * 19 + [""] * 10
    assert left_out == 10


@pytest.mark.parametrize("name", FRAMEWORKS)
def test_work_per_compilation_is_bounded(name):
    """What the recorder holds and does for one of many compilations does not grow with them."""
    done = run(
        f"""
        import json, sys
        from types import SimpleNamespace
        from nbprof.capture.compiles.recorder import Compiles
        from nbprof.core import compile_times

        name = {name!r}
        watch = Compiles(lambda: None)
        if name == "jax":
            from nbprof.capture.compiles import jax as module
            config = SimpleNamespace(explain_cache_misses=SimpleNamespace(value=False))
            follows = module.Watch(watch, config)
            def compiled():
                for event in (module.TRACED, module.LOWERED, module.COMPILED):
                    follows.measured(event, 0.001, fun_name="jit(step)")
        elif name == "torch":
            from nbprof.capture.compiles import torch as module
            dynamo = SimpleNamespace(graph_break_reasons=[])
            follows = module.Watch(dynamo, watch)
            def compiled():
                reason = SimpleNamespace(reason="a break", user_stack=[])
                dynamo.graph_break_reasons.append(reason)
                metrics = SimpleNamespace(compile_id="0/1", co_name="step", start_time_us=1)
                follows.compiled(metrics)
        else:
            from nbprof.capture.compiles import tensorflow as module
            spec = SimpleNamespace(type_constraint="Literal[1]")
            kind = SimpleNamespace(parameters={{"x": spec}})
            earlier = [SimpleNamespace(function_type=kind)] * 10_000
            options = SimpleNamespace(name="step", python_function=compile_times.packed,
                                      function_cache=SimpleNamespace(values=lambda: earlier))
            patches = SimpleNamespace(replace=lambda owner, name, value: setattr(owner, name, value))
            owner = SimpleNamespace(_create_concrete_function=lambda *arguments: None)
            module.follow(owner, patches, watch)
            other = SimpleNamespace(parameters={{"x": SimpleNamespace(type_constraint="Literal[2]")}})
            def compiled():
                owner._create_concrete_function(other, None, None, options)

        lines = 0
        def count(frame, event, argument):
            global lines
            lines += event == "line"
            return count

        def cost():
            global lines
            lines = 0
            sys.settrace(count)
            compiled()
            sys.settrace(None)
            return lines

        early = [cost() for _ in range(20)][-1]
        for _ in range(1_000):
            compiled()
        late = cost()
        stored = compile_times.unpacked(json.loads(json.dumps(watch.packed())))
        print(json.dumps([early, late, len(stored.rows), stored.left_out]))
        """
    )
    early, late, rows, left_out = json.loads(done.stdout)
    assert late <= early < 400
    assert (rows, left_out) == (MOST, 21)


def test_the_cache_on_disk(tmp_path):
    program = """
        import sys
        import jax, numpy as np
        import nbprof

        jax.config.update("jax_compilation_cache_dir", sys.argv[1])
        jax.config.update("jax_persistent_cache_min_compile_time_secs", 0.0)
        jax.config.update("jax_persistent_cache_min_entry_size_bytes", -1)
        with nbprof.profile(backend="python", save=False) as p:
            jax.jit(lambda x: x * 2 + 1)(np.ones(3))
        print(list(p.compiles.cache)[-1])
        """
    outcomes = [run(program, tmp_path, needs="jax").stdout.split()[-1] for _ in range(2)]
    assert outcomes == ["miss", "hit"]


def test_frameworks_that_the_cell_imports():
    """A cell that imports its framework is followed, and one that imports none imports none."""
    done = run(
        """
        import sys
        import nbprof

        with nbprof.profile(backend="python", save=False) as p:
            pass
        assert not {"jax", "torch", "tensorflow"} & set(sys.modules)
        with nbprof.profile(backend="python", save=False) as p:
            import jax, numpy
            jax.jit(lambda x: x + 1)(numpy.ones(2))
        print(list(p.compiles.cause))
        """
    )
    assert done.stdout.splitlines()[-1] == "['first_call']"


def test_functions_defined_again():
    done = run(
        """
        import jax, numpy as np
        import nbprof

        def cell():
            step = jax.jit(lambda x: x + 1)
            with nbprof.profile(backend="python", save=False) as p:
                step(np.ones(2))
            return list(p.compiles.cause)

        print(cell() + cell())
        """,
        needs="jax",
    )
    assert done.stdout.splitlines()[-1] == "['first_call', 'redefined']"


LOWERED_AGAIN = """
import json
import jax, numpy as np
from nbprof.capture.compiles import jax_lowered
from tests.capture.compiled import recorded

def step(x):
    return x * 2

def compiles(placed, **more):
    x = np.ones(4, "float32")
    jax.jit(step, **more)(jax.device_put(x, jax.devices()[0]) if placed else x)
"""


def _lowered_again(program):
    done = run(f"{LOWERED_AGAIN}\n{program}", needs="jax")
    return json.loads(done.stdout.splitlines()[-1])


def test_programs_of_an_earlier_cell_that_are_lowered_again():
    rows = _lowered_again("""
compiles(False)
rows = recorded(lambda: compiles(True, donate_argnums=0))
print(json.dumps([[row["cause"], row["before"], row["after"]] for row in rows]))
""")
    assert rows == [["placement", "uncommitted", "cpu:0"]]


def test_a_cache_that_may_have_dropped_a_lowering_names_no_cause():
    causes = _lowered_again("""
from unittest import mock
from jax._src import pjit

compiles(False)
class Full:
    cache_info = lambda self: mock.Mock(maxsize=2, currsize=2)
    __getattr__ = lambda self, name: getattr(lowers, name)
    __call__ = lambda self, *values, **more: lowers(*values, **more)
lowers = pjit._pjit_lower
pjit._pjit_lower = Full()
rows = recorded(lambda: compiles(True))
print(json.dumps([row["cause"] for row in rows]))
""")
    assert causes == ["unknown"]


def test_a_program_that_is_compiled_for_the_same_again_names_no_cause():
    """Its executable was dropped: the lowerings of before are not why."""
    causes = _lowered_again("""
from jax._src import pjit
from jax._src.interpreters import pxla

def program():
    compiles(False)
    compiles(True)
    for cache in (pjit._pjit_lower, pxla._cached_lowering_to_hlo, pxla._cached_compilation):
        cache.cache_clear()
    jax.jit(step)._clear_cache()
    compiles(True)

rows = recorded(program)
print(json.dumps([row["cause"] for row in rows]))
""")
    assert causes == ["first_call", "placement", "unknown"]


@pytest.mark.parametrize("name", ["_CALLS", "_PJIT", "_PARAMETERS"])
def test_another_version_of_jax_names_no_cause(name):
    causes = _lowered_again(f"""
jax_lowered.{name} = ("another",)
rows = recorded(lambda: [compiles(False), compiles(False, donate_argnums=0)])
print(json.dumps([row["cause"] for row in rows]))
""")
    assert causes == ["first_call", "unknown"]


def test_a_missing_hook_is_a_note():
    """Another version of a framework: the cell runs, and the receipt says what is missing."""
    done = run(
        """
        import torch, torch._dynamo
        import nbprof

        del torch._dynamo.utils.log_compilation_event
        with nbprof.profile(backend="python", save=False) as p:
            ran = True
        assert len(p.compiles) == 0
        print(list(p.receipt.notes.key))
        """,
        needs="torch",
    )
    assert "compilations_not_recorded" in done.stdout


STORED = """
import json, sys
import torch, torch._dynamo
import nbprof
from tests.support.payloads import check

def zebra_step(x, zebra_mode):
    return x + 1 if zebra_mode == "zebra a" else x - 1

def profiled(logdir):
    step = torch.compile(zebra_step, backend="eager", dynamic=False)
    with nbprof.profile(logdir=logdir, steps="all") as p:
        for number in nbprof.steps(range(7)):
            step(torch.ones(3), "zebra " + "abcdefgh"[number])
    return p.result

p = profiled(sys.argv[1])
again = nbprof.load(sys.argv[1])
payload = again.payload()
check(payload.overview.compiles, "Compiles")
table = payload.overview.compiles.table
p.save("full.html")
p.save("redacted.html", redact=True)
print(json.dumps({
    "live": p.compiles.to_dict("list"),
    "loaded": again.compiles.to_dict("list"),
    "causes": [table.cell("cause", row) for row in range(table.rows)],
    "times": [table.cell("compilations", row) for row in range(table.rows)],
    "notes": payload.overview.compiles.notes,
    "advice": again.advice.to_dict("records"),
}, default=str))
"""


def test_it_is_stored_shown_and_redacted(tmp_path):
    """A profile that is loaded again has it, and a redacted report has no value of the program."""
    done = run(STORED, tmp_path / "logs", needs="torch", cwd=tmp_path)
    found = json.loads(done.stdout.splitlines()[-1])
    assert found["live"] == found["loaded"]
    assert found["live"]["cause"] == ["first_call", *["python_value"] * 6]
    assert found["live"]["step"] == [1, 2, 3, 4, 5, 6, 7]
    assert sorted(zip(found["causes"], found["times"], strict=True)) == [
        ("first call", 1),
        ("python value", 6),
    ]
    assert found["notes"][0].startswith("7 compilations in the cell: ")
    assert "of which 6 again" in found["notes"][0]
    evidence = {row["rule"]: row["evidence"] for row in found["advice"]}["compile"]
    assert "zebra_step" in evidence
    assert "compiled again **6 times** in the cell" in evidence
    assert "zebra_mode is 'zebra" in evidence
    assert "zebra" in (tmp_path / "full.html").read_text(encoding="utf-8")
    assert "zebra" not in (tmp_path / "redacted.html").read_text(encoding="utf-8")
