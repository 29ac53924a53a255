"""All that a person can see of a profile: each frame, each accessor, the dashboard, the summary and
the output of a cell.
"""

from __future__ import annotations

from operator import attrgetter

from nbprof.display import codec
from nbprof.profiles.profile import Profile
from tests.support.frames import OF_A_PROFILE, accessors, public

_ACCESSORS = list(accessors())


def read_part(profile: Profile) -> None:
    """What is there as soon as the files are read."""
    trace = profile.run.as_read
    events = trace.events
    assert (events.duration >= 0).all(), "an event ends before it begins"
    assert len(events) == 0 or events.lane.max() < len(trace.lanes)
    assert str(trace.receipt), "no receipt"


def compute(profile: Profile) -> None:
    """Computes everything."""
    codec.pack(profile.payload())
    assert profile.text()
    profile.mimebundle()
    for name in OF_A_PROFILE:
        public(profile, name)
    for way in _ACCESSORS:
        repr(attrgetter(way)(profile))
    for view in (profile.steps, profile.ops, profile.kernels, profile.hlo):
        view.as_xprof()
    for module in profile.memory_viewer:
        found = profile.memory_viewer[module]
        _ = found.timeline, found.at_peak, found.summary
        assert found.text()
    assert profile.overview["verdict"]
    _ = profile.hosts, profile.runs
