"""A Dask scheduler that the settings name: its workers read the files of many hosts, for who may
run code.
"""

from __future__ import annotations

import json
import sys
from concurrent.futures import Future

import distributed
import pytest

from nbprof.display import codec
from nbprof.profiles.load import load
from nbprof.server.worker import Desk
from tests.support import pods

HOSTS = 10


@pytest.fixture(scope="module")
def job(tmp_path_factory):
    """A folder of ten hosts, more than are read in one process."""
    folder = tmp_path_factory.mktemp("job")
    pods.write(folder, HOSTS, 3)
    return folder


def opened(folder, scheduler):
    """The last message of a process that opens a folder, and its bytes."""
    sent = []
    desk = Desk(lambda head, body: sent.append((head, body)))
    head = {
        "id": 1,
        "do": "open",
        "path": str(folder),
        "shown": "job",
        "root": None,
        "run": "",
        "scheduler": scheduler,
    }
    desk.handle(head, b"")
    return sent[-1]


def test_its_workers_read_the_files(job):
    with distributed.LocalCluster(n_workers=1, processes=False, dashboard_address=None) as cluster:
        head, body = opened(job, cluster.scheduler_address)
        assert head["is"] == "done", head
        assert any("hosts" in str(key) for key in cluster.scheduler.task_prefixes)
    there, here = codec.unpack(body), load(job, executor=1).payload()
    assert there["meta"]["hosts"] == here["meta"]["hosts"]
    assert there["overview"]["verdict"] == here["overview"]["verdict"]


def test_few_hosts_do_not_ask_it(tmp_path):
    pods.write(tmp_path / "job", 2, 3)
    head, _ = opened(tmp_path / "job", "tcp://127.0.0.1:1")
    assert head["is"] == "done", head


@pytest.mark.parametrize("address", ["nonsense://there", "tcp://127.0.0.1:1"])
def test_one_that_is_not_there_is_a_sentence(job, address, monkeypatch):
    monkeypatch.setattr("nbprof.server.worker._CONNECT_S", 0.2)
    head, _ = opened(job, address)
    assert head["is"] == "failed"
    assert f"there is no Dask scheduler at {address} (" in head["text"]
    assert "clear the address in the settings" in head["text"]


def test_without_distributed_it_says_how_to_get_it(job, monkeypatch):
    monkeypatch.setitem(sys.modules, "distributed", None)
    head, _ = opened(job, "tcp://127.0.0.1:1")
    assert head["is"] == "failed"
    assert "pip install nbprof[dask]" in head["text"]


async def test_the_address_reaches_the_process(profile, open_profile, extension, monkeypatch):
    places = []

    async def opens(place, _tell):
        places.append(place)
        return codec.pack({"meta": {}})

    monkeypatch.setattr(extension.pool, "open", opens)
    for more in ({}, {"scheduler": "tcp://there:8786"}):
        status, reply = await open_profile("logs/host-a.xplane.pb", **more)
        assert status == 200, reply.message
    assert [place.scheduler for place in places] == ["", "tcp://there:8786"]


async def test_an_address_that_is_no_text_is_refused(profile, post):
    status, answer = await post("open", {"path": "logs/host-a.xplane.pb", "scheduler": 8786})
    assert (status, json.loads(answer)["message"]) == (
        400,
        "the scheduler must be given by its address.",
    )


@pytest.mark.parametrize("later", [False, True])
class TestNoCode:
    """Of an authorizer that answers at once, and one that takes its time."""

    @pytest.fixture
    def jp_server_config(self, later):
        from jupyter_server.auth import Authorizer

        class ReadsOnly(Authorizer):
            def is_authorized(self, handler, user, action, resource):
                answer = (action, resource) != ("execute", "kernels")
                if not later:
                    return answer
                future = Future()
                future.set_result(answer)
                import asyncio

                return asyncio.wrap_future(future)

        return {
            "ServerApp": {"jpserver_extensions": {"nbprof": True}, "authorizer_class": ReadsOnly}
        }

    @pytest.mark.parametrize("name", ["open", "ask"])
    async def test_who_may_not_run_code_may_not_name_one(
        self, later, profile, post, extension, name
    ):
        request = {
            "path": "logs/host-a.xplane.pb",
            "version": "",
            "scheduler": "tcp://there:8786",
            "request": {},
        }
        status, answer = await post(name, request)
        assert status == 403, answer
        assert "only users who may run code" in json.loads(answer)["message"]
        assert not extension.pool.processes
