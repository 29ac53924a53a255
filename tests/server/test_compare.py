"""Two profiles side by side, from the file browser's paths."""

from __future__ import annotations

import pytest
from tornado.httpclient import HTTPClientError

from tests.server.conftest import Reply
from tests.support.xspace import training_run


@pytest.fixture
def pair(profile):
    other = profile.with_name("host-b.xplane.pb")
    other.write_bytes(training_run(8))
    return "logs/host-a.xplane.pb", "logs/host-b.xplane.pb"


@pytest.fixture
def compare(post):
    async def compare(a, b):
        status, body = await post("compare", {"a": a, "b": b})
        return status, Reply(body)

    return compare


async def test_the_second_run_with_its_tab(compare, pair, extension):
    status, reply = await compare(*pair)
    assert status == 200
    assert reply.payload["meta"]["tab"] == "compare"
    assert [len(run["times_ms"]) for run in reply.payload["compare"]["runs"]] == [6, 8]
    assert len(reply.payload["steps"]["step"]) == 8
    # Its process is of no use any more.
    assert extension.pool.opened == []


async def test_the_trace_of_the_second_run_answers(compare, pair, post):
    _, reply = await compare(*pair)
    asked = {"path": pair[1], "version": reply.version, "request": {"ask": "hello"}}
    status, _ = await post("ask", asked)
    assert status == 200
    status, _ = await post("ask", {**asked, "path": pair[0]})
    assert status == 409


async def test_a_tab_that_has_one_of_them_open_keeps_it(compare, pair, open_profile, extension):
    await open_profile(pair[1])
    await compare(*pair)
    assert [one.place.browser_path for one in extension.pool.opened] == [pair[1]]


async def test_the_same_file_twice(compare, pair):
    _, reply = await compare(pair[0], pair[0])
    assert reply.payload["compare"]["pairs"][0]["kind"] == "same"


@pytest.mark.parametrize("bad", ["", "../x", "logs/none.xplane.pb", None, 3])
async def test_a_path_that_is_none_is_told(compare, pair, bad):
    for places in ((bad, pair[1]), (pair[0], bad)):
        status, reply = await compare(*places)
        assert status in (400, 404)
        assert reply.message.endswith(".")


async def test_a_broken_file_is_named(compare, pair, jp_root_dir):
    (jp_root_dir / "logs" / "bad.xplane.pb").write_bytes(b"no profile")
    status, reply = await compare(pair[0], "logs/bad.xplane.pb")
    # Progress may have been told before.
    assert status in (200, 422)
    assert reply.payload is None
    assert "logs/bad.xplane.pb" in reply.message
    assert str(jp_root_dir) not in reply.message


async def test_it_needs_who_may_read(pair, jp_base_url, jp_serverapp, http_server_client):
    with pytest.raises(HTTPClientError) as caught:
        await http_server_client.fetch(f"{jp_base_url}nbprof/api/compare", method="POST", body="{}")
    assert caught.value.code == 403
