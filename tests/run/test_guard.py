"""One failure costs one part: rules, evidence, tabs and frames that raise are left out, and a
sentence says which.
"""

from __future__ import annotations

import dataclasses
import re

import pytest

from nbprof.analysis.advice import input as input_rules
from nbprof.analysis.memory import growth
from nbprof.analysis.rule import ALL
from nbprof.core.errors import NbprofError, ReadError
from nbprof.core.guard import Failures, FrameError, collecting, guarded
from nbprof.profiles.brief import brief
from nbprof.profiles.load import load
from nbprof.profiles.report.static import static_html
from nbprof.run.many import partial
from nbprof.run.partial import Partial
from nbprof.tools import register
from tests.cache.conftest import cache, settle, written  # noqa: F401
from tests.support.kineto import Kineto, profile

REPORT = "This is a bug in nbprof; please report it with this line. Everything that does not depend on it is unaffected."


def training():
    file = Kineto(deviceProperties=[{"id": 0, "name": "GPU", "totalGlobalMem": 16 << 30}])
    for number in range(6):
        begin = 10_000.0 * number
        file.step(number, begin, 10_000)
        op = file.op("aten::mm", begin + 10, 60)
        file.launched("gemm", begin + 20, begin + 60, 1000, op)
        file.memory(begin + 20, 512, 512 * (number + 1), 512, 512, device=0)
    return file


def fails(*_args, **_options):
    raise ZeroDivisionError("of a test")


@pytest.mark.parts_fail
def test_what_fails_is_left_out_and_named():
    said = []
    with collecting(Failures(said.append)):
        assert guarded("The part", lambda: 1, lambda _: 0) == 1
        assert guarded("The part", fails, lambda sentence: sentence) == said[0]
        guarded("The part", fails, lambda _: 0)
        # What is said to the user on purpose is no failure.
        with pytest.raises(ReadError):
            guarded("The part", lambda: (_ for _ in ()).throw(ReadError("gone")), lambda _: 0)
    (sentence,) = said
    assert re.match(
        r"The part is left out: ZeroDivisionError: of a test \(.*guard\.py, line \d+\)\. ", sentence
    )
    assert sentence.endswith(REPORT)
    # Nobody collects them: a function that is tested by itself raises.
    with pytest.raises(ZeroDivisionError):
        guarded("The part", fails, lambda _: 0)


@pytest.mark.parts_fail
def test_a_rule(tmp_path, monkeypatch):
    want = profile(tmp_path, training()).advice["rule"].tolist()
    assert "input" not in want
    assert want
    broken = dataclasses.replace(input_rules.RULES[0], name="broken", check=fails, applies=ALL)
    monkeypatch.setattr(input_rules, "RULES", (broken, *input_rules.RULES))
    p = profile(tmp_path, training())
    assert p.advice["rule"].tolist() == want
    sentence = "The rule broken of the advice is left out: ZeroDivisionError: of a test"
    assert sentence in str(p.receipt)
    assert sentence in brief(p, 8000)
    assert [
        line["text"] for line in p.payload()["meta"]["receipt"] if line["text"].startswith(sentence)
    ]


@pytest.mark.parts_fail
def test_evidence(tmp_path, monkeypatch):
    want = profile(tmp_path, training()).advice
    monkeypatch.setattr(growth, "find", fails)
    p = profile(tmp_path, training())
    assert p.advice["rule"].tolist() == want["rule"].tolist()
    assert "The search for memory that grows is left out" in str(p.receipt)


@pytest.mark.parts_fail
@pytest.mark.parametrize(
    "tab", ["ops", "kernels", "memory", "input", "device_time", "trace", "pods"]
)
def test_a_tab(tmp_path, monkeypatch, tab):
    tools = register.tools()
    monkeypatch.setattr(
        register, "tools", lambda: {**tools, tab: dataclasses.replace(tools[tab], payload=fails)}
    )
    p = profile(tmp_path, training(), training())
    payload = p.payload()
    assert payload[tab]["empty"]["title"] == "This view could not be computed"
    assert "ZeroDivisionError: of a test" in payload[tab]["empty"]["text"]
    assert any(
        "ZeroDivisionError: of a test" in line["text"] for line in payload["meta"]["receipt"]
    )
    assert payload["overview"]["verdict"]["word"] != "Unknown"
    assert p.text()
    assert static_html(payload)


@pytest.mark.parts_fail
def test_the_overview(tmp_path, monkeypatch):
    tools = register.tools()
    broken = dataclasses.replace(tools["overview"], payload=fails)
    monkeypatch.setattr(register, "tools", lambda: {**tools, "overview": broken})
    p = profile(tmp_path, training())
    payload = p.payload()
    # The verdict follows from the steps alone.
    assert payload["overview"]["verdict"]["word"] == p.overview["verdict"]
    assert payload["overview"]["no_advice"].startswith(
        "The tab Overview is left out: ZeroDivisionError"
    )
    assert p.text()


@pytest.mark.parts_fail
@pytest.mark.parametrize("what", ["static", "lead"])
def test_a_text(tmp_path, monkeypatch, what):
    payload = profile(tmp_path, training()).payload()
    tools = register.tools()
    monkeypatch.setattr(
        register,
        "tools",
        lambda: {**tools, "kernels": dataclasses.replace(tools["kernels"], **{what: fails})},
    )
    assert "is left out: ZeroDivisionError: of a test" in static_html(payload)


@pytest.mark.parts_fail
def test_a_line_of_the_text(tmp_path, monkeypatch):
    p, tools = profile(tmp_path, training()), register.tools()
    monkeypatch.setattr(
        register,
        "tools",
        lambda: {**tools, "kernels": dataclasses.replace(tools["kernels"], text=fails)},
    )
    text = p.text()
    assert "is left out: ZeroDivisionError: of a test" in text
    assert p.overview["verdict"] in text
    assert len(text.splitlines()) <= 10


@pytest.mark.parts_fail
def test_a_frame(tmp_path, monkeypatch):
    p = profile(tmp_path, training())
    monkeypatch.setattr("nbprof.analysis.memory.memory.timeline", fails)
    with pytest.raises(
        FrameError,
        match=r"of_allocations of the analysis could not be computed. ZeroDivisionError: of a",
    ) as error:
        _ = p.memory.timeline
    assert isinstance(error.value, NbprofError)
    assert isinstance(error.value.__cause__, ZeroDivisionError)
    assert len(p.kernels.frame) == 1
    payload = p.payload()
    assert payload["kernels"]["table"]["rows"] == 1
    assert (
        "of_allocations of the analysis could not be computed" in payload["memory"]["empty"]["text"]
    )
    assert len(p.steps.frame) == 6


@pytest.mark.parts_fail
def test_what_lacks_a_part_is_not_kept(tmp_path, cache, monkeypatch):  # noqa: F811
    path = tmp_path / "one.pt.trace.json"
    path.write_bytes(training().encode())
    settle(path)
    with monkeypatch.context() as broken:
        broken.setattr(growth, "find", fails)
        p = load(path)
        _ = p.advice
        assert "The search for memory that grows is left out" in str(p.receipt)
        written()
    again = load(path)
    _ = again.advice
    assert "The search" not in str(again.receipt)


@pytest.mark.parts_fail
def test_of_a_host_that_is_read_by_a_worker(tmp_path, monkeypatch):
    files = profile(tmp_path, training()).run.files
    monkeypatch.setattr(growth, "find", fails)
    notes = Partial(partial(files, None, None, ("some",), "any"))["read"]["notes"]
    assert [
        note.level
        for note in notes
        if note.text.startswith("The search for memory that grows is left out")
    ] == ["warning"]
