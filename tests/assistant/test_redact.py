"""With --redact no name of a profile or of the machine is in an answer, and none can be found out
by asking.
"""

from __future__ import annotations

import shutil

import pytest

from nbprof.schema.frames import SCHEMA
from tests.assistant.asked import DATA, asked
from tests.report.test_redact import PLANTED, leaks

FRAMES = [
    name
    for name in SCHEMA
    if not name.startswith(("comparison.", "memory_viewer[")) and name != "trace.range"
]


async def _everything(call):
    """Every answer on what is open."""
    said = [
        await call("open"),
        await call("open", run="frumiousNet"),
        await call("open", path="zorblatt/secret.pb"),
    ]
    ident = said[0].value["id"]
    said += [
        await call("brief", id=ident, tokens=10**6),
        await call("advice", id=ident),
        await call("compare", before=ident, after=ident),
    ]
    said += [await call("brief", id=said[-1].value["id"])]
    for name in FRAMES:
        said.append(await call("frame", id=ident, name=name, limit=1000))
    for order in ("duration", "start", "by_name"):
        said.append(await call("events", id=ident, from_ms=0, to_ms=1e9, order=order))
    said += [
        await call("events", id=ident, from_ms=0, to_ms=1, name="zorblatt"),
        await call("frame", id=ident, name="Quuxington"),
    ]
    assert [each.text for each in said if "nbprof failed" in each.text] == []
    return said


@pytest.mark.parametrize("kind", ["kineto", "xspace of TensorFlow"])
def test_no_secret_is_in_any_answer(kind, tmp_path):
    folder = tmp_path / "tulgey"
    folder.mkdir()
    PLANTED[kind](folder)
    plain = asked(_everything, folder)
    assert len(leaks(*(each.value for each in plain))) >= 3
    redacted = asked(_everything, folder, redact=True, bytes=1 << 20)
    assert leaks(*(each.value for each in redacted)) == set()
    assert str(tmp_path) not in "".join(each.text for each in redacted)


def test_runs_beside_the_one_that_is_open_are_not_named(tmp_path):
    for name in ("video_encoder", "audio_encoder"):
        run = tmp_path / "plugins" / "profile" / name
        run.mkdir(parents=True)
        shutil.copy(DATA / "xspace" / "jax_cpu.xplane.pb", run)
    answer = asked(lambda call: call("open"), tmp_path, redact=True)
    assert len(answer.value["runs_here"]) == 2
    assert "encoder" not in answer.text


def test_tables_are_filtered_by_pseudonyms_and_runs_opened_by_them(tmp_path):
    PLANTED["xspace of TensorFlow"](tmp_path)

    async def session(call):
        opened = (await call("open")).value
        assert opened["run"].startswith("name_")
        again = (await call("open", run=opened["run"])).value
        assert (again["id"], again["steps"]) == (opened["id"], opened["steps"])
        rows = (
            await call("frame", id="p1", name="ops", columns=["op", "self_us"], limit=200)
        ).value["rows"]
        hidden = next(
            name for name, _ in rows if name.startswith("name_") and name.count("name_") == 1
        )
        found = (
            await call("frame", id="p1", name="ops", columns=["op"], filter=f"op == {hidden!r}")
        ).value
        assert {name for (name,) in found["rows"]} == {hidden}
        for word in ("zorblatt", "frumious", "zo"):
            probed = (await call("frame", id="p1", name="ops", filter=f"{word!r} in op")).value
            assert probed["rows_that_match"] == sum(word in name for name, _ in rows)
        assert (
            "takes a filter of names"
            in (await call("events", id="p1", from_ms=0, to_ms=1, name="zo")).value["error"]
        )
        # It asks no profile, and its words are nbprof's own.
        assert "Welch" in (await call("explain", term="Welch")).text

    asked(session, tmp_path, redact=True)
