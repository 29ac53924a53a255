"""The extension on a real server: what it opens, and what it refuses."""

from __future__ import annotations


async def test_it_gives_the_payload_that_python_gives(profile, open_profile):
    from nbprof.profiles import load

    status, reply = await open_profile("logs/host-a.xplane.pb")
    assert status == 200, reply.message
    assert reply.payload["overview"]["verdict"] == load(profile).payload()["overview"]["verdict"]
