"""Advice to prepare batches beside the steps: with numbers that fit the machine, and no gain that
its cores do not hold.
"""

from __future__ import annotations

import json
import re
from dataclasses import asdict, replace

import pytest

import nbprof
from nbprof.analysis.advice.advice import frame
from nbprof.analysis.advice.cores import Load, Machine, Times, fitted, more_workers_for, workers_for
from nbprof.core import loader_uses
from nbprof.core.loader_uses import DATA_LOADER, ITERABLE, PY_DATASET, TF_DATA, LoaderUse
from tests.support.kineto import Kineto, profile

FREE = {"cores": 8.0, "own_cores": 1.0, "other_cores": 0.0, "waited_percent": 1.0}
FULL = {"cores": 4.0, "own_cores": 3.7, "other_cores": 0.1}
TWO = {"cores": 2.0, "own_cores": 1.0, "other_cores": 0.0, "waited_percent": 1.0}
LOADER = LoaderUse(
    DATA_LOADER, "Images", 0, None, False, False, None, 64, True, 2, 39, 2.4, 2.4, 1.6, 1.6
)
"""60 of 100 ms are waits, and each part of a step uses one core."""


def loop(kind: str) -> Kineto:
    k = Kineto()
    for i in range(4):
        k.step(i, 100_000 * i, 100_000)
        k.note(f"enumerate(DataLoader)#_{kind}DataLoaderIter.__next__", 100_000 * i, 60_000)
        k.op("aten::mm", 100_000 * i + 60_000, 40_000)
    return k


def loaded(folder, kind, measured=None, *uses):
    """The profile of a loop, as a recording of that machine and these loaders has it."""
    (folder / "a.pt.trace.json").write_bytes(loop(kind).encode())
    sidecar = {
        "backend": "torch",
        "contention": measured or {},
        "loaders": loader_uses.packed(uses),
    }
    (folder / "nbprof.json").write_text(json.dumps(sidecar))
    return nbprof.load(folder)


def finding(folder, kind, measured=None, *uses):
    """The finding on the loader."""
    advice = loaded(folder, kind, measured, *uses).advice.set_index("rule")
    return advice.loc["loader_in_process" if kind == "SingleProcess" else "loader_workers"]


def workers_in(fix: str) -> int:
    return int(re.search(r"^\+.*num_workers=(\d+)", fix, re.MULTILINE)[1])


@pytest.mark.parametrize(
    ("machine", "rest_cores", "workers", "step"),
    [
        # 66 ms of a core for each batch, and 2 to hand it over: two workers make one in 34 ms, and
        # the rest takes 42.
        (Machine(8, 1, 0), 1, 2, 42.0),
        # One core beside that of the training: the worker is slower than the rest.
        (Machine(2, 1, 0), 1, 1, 68.0),
        # Both cores are used by the training: with one left to it, its 80 core ms take 80 ms.
        (Machine(2, 1.4, 0), 2, 1, 82.0),
        # Others have one of two: what is left has all the work to do.
        (Machine(2, 1, 1), 1, 1, 106.0),
        (Machine(1, 1, 0), 1, 1, 106.0),
    ],
)
def test_workers_share_the_cores_with_the_training(machine, rest_cores, workers, step):
    load = Load(100.0, 60.0, 60.0, rest_cores * 40.0)
    count, predicted = workers_for(load, machine)
    if step < 100.0:
        assert (count, predicted) == (workers, pytest.approx(step))
    else:
        assert predicted >= step
    assert count <= machine.cores


def test_workers_that_wait_for_a_disk_need_no_cores():
    """60 ms of a step pass in the loader, 3 ms of them on a core."""
    count, predicted = workers_for(Load(100.0, 60.0, 3.0, 40.0), Machine(2, 0.43, 0))
    assert (count, predicted) == (2, pytest.approx(42.0))


def test_more_workers_than_cores_where_they_only_wait():
    """130 ms of a step of 140 pass in the loader, which waits for a network."""
    count, predicted = workers_for(Load(140.0, 130.0, 1.0, 10.0), Machine(2, 0.1, 0))
    assert count > 2
    assert predicted < 20.0
    assert more_workers_for(140.0, 130.0, 1, Machine(2, 0.2, 0), 0.125) == (10, pytest.approx(14.0))


@pytest.mark.parametrize(
    ("machine", "workers", "step"),
    [
        # Three are busy, five free: without the wait a step takes 40 ms.
        (Machine(8, 3, 0), 5, 40.0),
        (Machine(4, 3, 0), 3, 75.0),
        (Machine(4, 3.9, 0), 2, 100.0),
        (Machine(4, 3, 1), 2, 100.0),
    ],
)
def test_more_workers_help_as_far_as_cores_are_free(machine, workers, step):
    assert more_workers_for(100.0, 60.0, 2, machine) == (workers, pytest.approx(step))


def test_the_numbers_are_those_of_the_machine(tmp_path):
    row = finding(tmp_path, "SingleProcess", FREE, LOADER)
    assert row["fix"] == (
        "-loader = DataLoader(dataset, batch_size=64, shuffle=True)\n"
        "+loader = DataLoader(dataset, batch_size=64, shuffle=True, num_workers=2,\n+                    persistent_workers=True)"
    )
    assert row["gain_ms_per_step"] == pytest.approx(58.0)
    assert row["gain_is"] == "about"
    assert (
        "The rest of the step uses **1.0** of the **8** cores, and a batch takes **60.00 ms** of a core"
        in row["evidence"]
    )
    assert "with **2 workers** a step takes about **42.00 ms**" in row["evidence"]


def test_two_cores_get_one_worker_and_its_gain(tmp_path):
    row = finding(tmp_path, "SingleProcess", TWO, LOADER)
    assert workers_in(row["fix"]) == 1
    assert row["gain_ms_per_step"] == pytest.approx(32.0)
    assert "set_num_threads" not in row["fix"]


def test_where_the_training_has_all_cores_workers_need_theirs_back(tmp_path):
    """A worker takes one of two cores: the 40 ms of the rest become 80."""
    row = finding(
        tmp_path, "SingleProcess", {**TWO, "own_cores": 1.4}, replace(LOADER, rest_cpu_s=3.2)
    )
    assert row["gain_ms_per_step"] == pytest.approx(18.0)
    assert workers_in(row["fix"]) == 1
    assert "+torch.set_num_threads(1)" in row["fix"]
    assert "with more than **1** thread of its own" in row["evidence"]


@pytest.mark.parametrize(
    ("measured", "use"),
    [
        ({**TWO, "other_cores": 1.0}, LOADER),
        # Transforms that use both cores leave none for the rest.
        ({**TWO, "own_cores": 2.0}, replace(LOADER, wait_cpu_s=4.8, rest_cpu_s=3.2)),
        ({"cores": 1.0, "own_cores": 1.0, "other_cores": 0.0}, LOADER),
    ],
)
def test_no_gain_is_promised_that_the_cores_do_not_hold(tmp_path, measured, use):
    row = finding(tmp_path, "SingleProcess", measured, use)
    assert row["title"] == "Make items cheaper: no core is free for more workers"
    assert "num_workers" not in row["fix"]
    # Without a device, what makes items took cores from the rest, which may gain as well.
    assert row["gain_is"] == "about"
    assert "workers would take their time from the rest of the step" in row["evidence"]


def test_a_batch_that_costs_as_much_to_hand_over_as_to_make_needs_no_worker():
    """2.85 ms a step with the loader in the process, 3.98 with a worker: as measured on an idle
    machine of 16 cores.
    """
    use = replace(LOADER, wait_s=0.06, wait_cpu_s=0.06, rest_s=0.06, rest_cpu_s=0.06)
    row = fitted(row_of("loader_in_process"), FREE, [use], Times(3.9, 1.9)).iloc[0]
    assert row["title"] == "Make items cheaper: a worker would cost as much time as it saves"
    assert "to send and receive its batch takes about **2.00 ms**" in row["evidence"]
    assert "num_workers" not in row["fix"]


def test_the_kinds_of_input_work_ask_for_no_workers_where_the_advice_asks_for_none(tmp_path):
    """*Steps & input* said "load in worker processes" beside advice that a worker would cost as
    much as it saves.
    """
    categories = loaded(
        tmp_path, "SingleProcess", {**TWO, "other_cores": 1.0}, LOADER
    ).input_pipeline.categories.set_index("category")
    assert "workers would not help" in categories.loc["demanded_file_read", "advice"]
    assert categories.loc["enqueue", "advice"] == ""
    categories = loaded(tmp_path, "SingleProcess", TWO, LOADER).input_pipeline.categories.set_index(
        "category"
    )
    assert "num_workers" in categories.loc["demanded_file_read", "advice"]


def test_without_the_loader_the_use_of_the_cores_is_what_is_known(tmp_path):
    row = finding(tmp_path, "SingleProcess", TWO)
    assert workers_in(row["fix"]) == 1
    assert row["gain_ms_per_step"] == pytest.approx(32.0)


def test_where_the_machine_is_not_known_the_gain_is_a_bound(tmp_path):
    row = finding(tmp_path, "SingleProcess")
    assert (row["gain_is"], row["gain_ms_per_step"]) == ("up to", pytest.approx(60.0))
    assert workers_in(row["fix"]) == 1
    assert (
        profile(tmp_path, loop("SingleProcess"))
        .advice.set_index("rule")
        .loc["loader_in_process", "fix"]
        .count("num_workers=4")
        == 0
    )


BUSY = LoaderUse(
    DATA_LOADER, "Images", 2, 2, True, True, None, 32, False, 1, 39, 2.4, 0.1, 1.6, 1.6
)


def test_more_workers_are_as_many_as_have_a_core(tmp_path):
    row = finding(tmp_path, "MultiProcessing", {**FREE, "own_cores": 3.0}, BUSY)
    assert row["fix"].splitlines()[0] == (
        "-loader = DataLoader(dataset, batch_size=32, num_workers=2, pin_memory=True, persistent_workers=True)"
    )
    assert workers_in(row["fix"]) == 5
    assert row["gain_ms_per_step"] == pytest.approx(60.0)
    assert "About **5.0** of the **8** cores were free" in row["evidence"]


def test_threads_that_spin_while_they_wait_for_workers_leave_their_core(tmp_path):
    """One worker that sleeps: of 1.2 cores in use, 0.6 are threads of ops that wait for a batch."""
    machine = Machine(2, 1.2, 0)
    assert more_workers_for(100.0, 60.0, 1, machine, 0.125)[1] == pytest.approx(60.0)
    assert more_workers_for(100.0, 60.0, 1, machine, 0.125, 0.6)[1] == pytest.approx(40.0)
    use = replace(BUSY, workers=1, wait_cpu_s=2.4, rest_cpu_s=2.4)
    row = finding(tmp_path, "MultiProcessing", {**TWO, "own_cores": 1.2}, use)
    assert row["gain_ms_per_step"] == pytest.approx(60.0)
    assert row["gain_is"] == "about"
    assert "About **1.4** of the **2** cores were free" in row["evidence"]


def test_where_all_cores_are_busy_items_must_become_cheaper(tmp_path):
    row = finding(tmp_path, "MultiProcessing", FULL, BUSY)
    assert (
        "They and the training process kept **3.7** of the **4** cores busy: more workers would have no free core."
        in row["evidence"]
    )
    assert "num_workers" not in row["fix"]
    assert "no core is free" in row["title"]
    assert row["gain_ms_per_step"] == pytest.approx(60.0)


def test_cores_that_others_have_are_not_free(tmp_path):
    row = finding(
        tmp_path, "MultiProcessing", {"cores": 4.0, "own_cores": 2.0, "other_cores": 2.0}, BUSY
    )
    assert "and others **2.0**" in row["evidence"]
    assert "num_workers" not in row["fix"]


def test_one_core_is_no_plural(tmp_path):
    assert (
        "**95%** of the core"
        in finding(tmp_path, "MultiProcessing", {"cores": 1.0, "own_cores": 0.95})["evidence"]
    )


def test_pinned_loaders_are_not_to_be_pinned(tmp_path):
    advice = profile(tmp_path, loop("SingleProcess")).advice
    rows = advice.assign(rule="pinned_memory")
    times = Times(100.0, 60.0, devices=True)
    assert fitted(rows, {}, [replace(LOADER, pin_memory=True)], times).empty
    assert fitted(rows, {}, [LOADER], times).equals(rows)
    assert fitted(rows, {}, [], times).equals(rows)


def row_of(
    rule, fix="-ds = ds.map(fn)\n+ds = ds.map(fn, num_parallel_calls=tf.data.AUTOTUNE)", gain=60.0
):
    """A finding of TensorFlow or JAX, on a step of 100 ms that waits for 60."""
    columns = (
        "rule",
        "severity",
        "title",
        "evidence",
        "gain_ms_per_step",
        "gain_is",
        "fix",
        "view",
        "link",
        "certainty",
        "refuted_by",
    )
    values = (rule, "high", "t", "It waits.", gain, "about", fix, "input", "Input", "measured", "w")
    return frame([]).reindex([0]).assign(**dict(zip(columns, values, strict=True)))


TF = LoaderUse(
    TF_DATA, iterations=1, batches=39, wait_s=2.4, wait_cpu_s=2.4, rest_s=1.6, rest_cpu_s=1.6
)


@pytest.mark.parametrize(
    ("rule", "measured", "uses", "gain"),
    [
        ("map_serial", FREE, [], 60.0),
        # 100 core ms a step on two cores.
        ("map_serial", TWO, [], 50.0),
        ("map_serial", TWO, [TF], 50.0),
        ("map_serial", TWO, [replace(TF, rest_cpu_s=3.2)], 30.0),
        # Batches are still made one after the other, 60 ms each.
        ("prefetch_missing", FREE, [], 40.0),
        ("prefetch_missing", TWO, [], 40.0),
        ("input_bottleneck", TWO, [], 50.0),
        ("input_outside_tf_data", TWO, [], 40.0),
        ("input_ahead", TWO, [], 50.0),
        ("eager", TWO, [], 60.0),
    ],
)
def test_what_runs_beside_the_steps_has_the_cores_that_are_there(rule, measured, uses, gain):
    row = fitted(row_of(rule), measured, uses, Times(100.0, 60.0)).iloc[0]
    assert row["gain_ms_per_step"] == pytest.approx(gain)
    assert ("with both at once a step takes about" in row["evidence"]) is (gain < 60.0)
    # What the cores hold is an estimate: the wait may need less of them, or others leave more.
    assert row["gain_is"] == "about"


@pytest.mark.parametrize("rule", ["input_outside_tf_data", "prefetch_missing"])
def test_batches_that_take_longest_are_not_hidden_by_being_made_ahead(rule):
    findings = fitted(row_of(rule, gain=98.0), FREE, [], Times(100.0, 98.0))
    if rule == "prefetch_missing":
        assert findings.empty
        return
    assert "prepared ahead, they would still be what takes longest" in findings.loc[0, "title"]
    assert "a batch takes as long as before" in findings.loc[0, "evidence"]


@pytest.mark.parametrize(
    ("wait_s", "cpu_s", "measured", "workers", "gain"),
    [
        # 60 ms of each step pass in a generator that waits for a server, in two workers 31 each;
        # the rest takes 40 and receives.
        (2.4, 0.1, {**TWO, "own_cores": 1.8}, 2, 58.0),
        # One worker hides what is shorter than the rest of the step.
        (1.2, 0.1, {**TWO, "own_cores": 1.8}, 1, 28.0),
        # One that computes has the core that the rest of the step leaves: 1.1 times 60, and 2.
        (2.4, 2.4, TWO, 1, 32.0),
    ],
)
def test_an_iterator_runs_in_as_many_workers_as_are_worth_it(
    wait_s, cpu_s, measured, workers, gain
):
    use = replace(TF, kind=ITERABLE, wait_s=wait_s, wait_cpu_s=cpu_s)
    times = Times(40.0 + wait_s / 0.04, wait_s / 0.04)
    one = "+loader = DataLoader(Batches(), num_workers=1)"
    row = fitted(row_of("loader_none", fix=one, gain=times.wait), measured, [use], times).iloc[0]
    assert row["gain_ms_per_step"] == pytest.approx(gain)
    assert f"num_workers={workers}" in row["fix"]
    # Several workers would each run the whole of an iterator.
    assert ("make_batch(i)" in row["fix"]) is (workers > 1)


def test_a_worker_is_not_worth_what_it_takes_to_send_a_short_batch():
    asked = row_of("loader_none", fix="", gain=3.7)
    row = fitted(asked, {**TWO, "own_cores": 1.01}, [], Times(3.75, 3.7)).iloc[0]
    assert "a worker would cost as much time as it saves" in row["title"]
    assert "np.load" in row["fix"]


def test_a_pipeline_that_sleeps_needs_no_core():
    # 60 ms of each step pass in a generator that waits for a server.
    rule, use = "input_ahead", replace(TF, kind=ITERABLE, wait_cpu_s=0.1)
    row = fitted(row_of(rule), {**TWO, "own_cores": 1.8}, [use], Times(100.0, 60.0)).iloc[0]
    assert row["gain_ms_per_step"] == pytest.approx(60.0)
    assert row["evidence"] == "It waits."
    # One that computes has the core that the rest of the step leaves.
    use = replace(use, wait_cpu_s=2.4)
    row = fitted(row_of(rule), TWO, [use], Times(100.0, 60.0)).iloc[0]
    assert row["gain_ms_per_step"] == pytest.approx(50.0)


@pytest.mark.parametrize(
    ("rule", "fix"),
    [("map_serial", "tf.data.Dataset.load"), ("input_ahead", "np.load"), ("prefetch_missing", "")],
)
def test_where_no_core_is_free_nothing_runs_beside_the_steps(rule, fix):
    findings = fitted(row_of(rule), {**TWO, "other_cores": 1.0}, [], Times(100.0, 60.0))
    if not fix:
        assert findings.empty, "all that it does is to let things run at once"
        return
    assert "no core is free to prepare them" in findings.loc[0, "title"]
    assert fix in findings.loc[0, "fix"]


@pytest.mark.parametrize(
    ("rule", "use", "code"),
    [
        ("input_ahead", LOADER, "num_workers=2"),
        ("input_ahead", BUSY, "num_workers=5"),
        (
            "input_ahead",
            LoaderUse(PY_DATASET, "Batches", 1, 10, processes=False),
            "+model.fit(Batches(workers=2, use_multiprocessing=True))",
        ),
        ("input_outside_tf_data", LOADER, "num_workers=2"),
        (
            "input_bottleneck",
            LoaderUse(PY_DATASET, "Batches", 1, 10, processes=False),
            "-model.fit(Batches(workers=1))",
        ),
    ],
)
def test_a_loader_of_another_library_is_the_one_to_change(rule, use, code):
    asked = row_of(rule)
    asked["evidence"] = (
        "**Generator** takes long, over **9** calls. The slowest call took **9 ms**, most of it in **Generator**. Read files with tf.data."
    )
    row = fitted(asked, FREE, [use], Times(100.0, 60.0)).iloc[0]
    assert code in row["fix"]
    assert "tf.data" not in row["fix"] + row["evidence"]
    assert (
        f"The batches come from the {use.kind.rpartition('.')[2]} of **{use.dataset}**."
        in row["evidence"]
    )


def test_a_pipeline_of_the_program_is_not_that_of_a_loader():
    row = fitted(row_of("input_bottleneck"), FREE, [LOADER], Times(100.0, 60.0)).iloc[0]
    assert "num_parallel_calls" in row["fix"]


def test_keras_has_no_data_loader_of_the_users(tmp_path):
    (tmp_path / "a.pt.trace.json").write_bytes(loop("SingleProcess").encode())
    batches = LoaderUse(PY_DATASET, "Batches", 1, 10, processes=False, shuffle=True, iterations=1)
    for measured in (FREE, {**TWO, "other_cores": 1.0}):
        sidecar = {"backend": "torch", "notes": ["steps: batches of Keras"], "contention": measured}
        packed = loader_uses.packed([replace(LOADER, dataset="ConverterIterableDataset"), batches])
        (tmp_path / "nbprof.json").write_text(json.dumps({**sidecar, "loaders": packed}))
        row = nbprof.load(tmp_path).advice.set_index("rule").loc["loader_in_process"]
        assert "DataLoader" not in row["fix"] + row["evidence"]
        assert (
            row["fix"]
            == "-model.fit(Batches(workers=1))\n+model.fit(Batches(workers=2, use_multiprocessing=True))"
        ) is (measured is FREE)
        assert "Batches" in row["fix"]


def test_loaders_survive_the_sidecar():
    uses = (LOADER, BUSY, TF)
    assert loader_uses.unpacked(json.loads(json.dumps(loader_uses.packed(uses)))) == uses
    assert loader_uses.packed([]) == {}


@pytest.mark.parametrize(
    "change",
    [
        {"workers": -1}, {"workers": True}, {"workers": "2"}, {"batches": None}, {"pin_memory": 1}, {"wait_s": float("nan")},
        {"wait_s": -1.0}, {"kind": 3}, {"dataset": "x" * 101}, {"more": 1},
    ],
)  # fmt: skip
def test_damaged_loaders_are_left_out(change):
    row = {**asdict(LOADER), **change}
    assert loader_uses.unpacked({"version": 1, "loaders": [row, asdict(BUSY)]}) == (BUSY,)


@pytest.mark.parametrize(
    "values",
    [{}, None, [], {"version": 2, "loaders": []}, {"version": 1}, {"version": 1, "loaders": {}}],
)
def test_what_is_no_list_of_loaders_is_none(values):
    assert loader_uses.unpacked(values) == ()
