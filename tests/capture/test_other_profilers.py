"""Another profiler of Python calls is given back when a recording of Python calls, which takes its
place, ends.
"""

from __future__ import annotations

import cProfile
import sys
import threading

import pytest

import nbprof
from nbprof.capture.other_profilers import OtherProfilers
from tests.capture.notes import text_of


def theirs(_frame, _event, _arg):
    """The function of another profiler."""


def recorder(_frame, _event, _arg):
    """What a framework's recorder of Python calls sets."""


@pytest.fixture(autouse=True)
def nothing_is_set():
    """A tool that measures these tests keeps what it has set."""
    before = sys.getprofile()
    sys.setprofile(None)
    yield
    sys.setprofile(before)
    threading.setprofile(None)


def test_the_function_is_set_again():
    sys.setprofile(theirs)
    threading.setprofile(theirs)
    others = OtherProfilers(displaced=True)
    sys.setprofile(recorder)
    threading.setprofile(recorder)
    others.started()
    notes = []
    with others.given_back(notes):
        sys.setprofile(None)
        threading.setprofile(None)
    assert sys.getprofile() is theirs
    assert threading.getprofile() is theirs
    assert "was running (theirs): " in text_of(notes, "profiler_suspended")


def test_cprofile_goes_on():
    profile = cProfile.Profile()
    profile.enable()
    others = OtherProfilers(displaced=True)
    sys.setprofile(recorder)
    notes = []
    with others.given_back(notes):
        sys.setprofile(None)
    sum(len(str(i)) for i in range(10))
    profile.disable()
    assert any("genexpr" in str(entry.code) for entry in profile.getstats())
    assert "(cProfile.Profile)" in text_of(notes, "profiler_suspended")


@pytest.mark.parametrize("ended", [True, False])
def test_what_the_program_ended_or_replaced_stays_so(ended):
    sys.setprofile(theirs)
    others = OtherProfilers(displaced=True)
    notes = []
    # The program ends its profiler, and with it the recorder's function, or sets another one.
    sys.setprofile(None if ended else recorder)
    with others.given_back(notes):
        pass
    assert sys.getprofile() is (None if ended else recorder)
    assert not notes


def test_nothing_is_looked_at_where_no_python_is_recorded():
    sys.setprofile(theirs)
    others = OtherProfilers(displaced=False)
    notes = []
    with others.given_back(notes, hidden=True):
        sys.setprofile(None)
    assert sys.getprofile() is None
    assert not notes


def test_one_of_another_thread_is_not_set_on_this_one():
    sys.setprofile(theirs)
    others = OtherProfilers(displaced=True)

    def end():
        sys.setprofile(recorder)
        with others.given_back([]):
            sys.setprofile(None)
        found.append(sys.getprofile())

    found = []
    thread = threading.Thread(target=end)
    thread.start()
    thread.join()
    assert found == [None]


@pytest.mark.parametrize(
    "package", [pytest.param("torch", id="torch"), pytest.param("jax", id="jax")]
)
def test_recordings_of_python_give_it_back(package, tmp_path):
    framework = pytest.importorskip(package)
    sys.setprofile(theirs)
    with nbprof.profile(python=True, backend=package, logdir=str(tmp_path)) as p:
        if package == "torch":
            framework.ones(4).add(1)
        else:
            framework.numpy.ones(4).block_until_ready()
    assert sys.getprofile() is theirs
    assert "another profiler of Python calls was running (theirs)" in str(p.receipt)


@pytest.mark.skipif(sys.version_info < (3, 12), reason="sys.monitoring is of Python 3.12")
def test_a_tool_of_sys_monitoring_is_given_back():
    monitoring, called = sys.monitoring, []
    event = monitoring.events.PY_START
    monitoring.use_tool_id(2, "theirs")
    try:
        monitoring.register_callback(2, event, lambda code, _: called.append(code.co_name))
        monitoring.set_events(2, event)
        others = OtherProfilers(displaced=True)
        monitoring.set_events(2, 0)
        monitoring.register_callback(2, event, None)
        monitoring.free_tool_id(2)
        monitoring.use_tool_id(2, "recorder")
        others.started()
        notes = []
        with others.given_back(notes):
            monitoring.free_tool_id(2)
        recorder(None, "", None)
        assert monitoring.get_tool(2) == "theirs"
        assert "recorder" in called
        assert "(theirs)" in text_of(notes, "profiler_suspended")
    finally:
        monitoring.set_events(2, 0)
        monitoring.register_callback(2, event, None)
        monitoring.free_tool_id(2)
