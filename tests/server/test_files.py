"""Renaming, deleting and downloading runs: all files of a run together, and nothing else."""

from __future__ import annotations

import io
import json
import os
import zipfile

import pytest
from tornado.simple_httpclient import HTTPStreamClosedError

from nbprof.server import complete_run
from tests.server.conftest import place, torch_trace
from tests.support.xspace import training_run

RUN = "logs/plugins/profile/2024_05_01_10_00_00"


@pytest.fixture
def options():
    return {"analysed": 0}


@pytest.fixture
def jp_server_config(options):
    return {
        "ServerApp": {"jpserver_extensions": {"nbprof": True}},
        "NbprofServer": options,
        "FileContentsManager": {"delete_to_trash": False},
        "AsyncFileContentsManager": {"delete_to_trash": False},
    }


@pytest.fixture
def run(jp_root_dir):
    """A run of two hosts, with what nbprof and TensorBoard write beside it."""
    folder = jp_root_dir / RUN
    place(folder, "host-a.xplane.pb")
    place(folder, "host-b.xplane.pb", training_run(5))
    place(folder, "host-a.trace.json.gz", b"")
    place(folder, "nbprof.json", b"{}")
    place(folder, "ALL_HOSTS.op_stats.pb", b"")
    return folder


@pytest.fixture
def rename(post):
    async def rename(path, name):
        status, body = await post("rename", {"path": path, "name": name})
        return status, json.loads(body)

    return rename


@pytest.fixture
def delete(post):
    async def delete(*paths):
        status, body = await post("delete", {"paths": list(paths)})
        return status, json.loads(body)

    return delete


@pytest.fixture
def download(jp_fetch):
    async def download(path, **more):
        return await jp_fetch(
            "nbprof", "api", "download", params={"path": path}, raise_error=False, **more
        )

    return download


def names(folder):
    return sorted(entry.name for entry in folder.iterdir())


class TestRename:
    async def test_a_run_folder_moves_with_all_that_is_in_it(self, run, rename, open_profile):
        before = names(run)
        status, answer = await rename(RUN, "baseline run")
        assert (status, answer) == (
            200,
            {
                "path": "logs/plugins/profile/baseline run",
                "moves": [[RUN, "logs/plugins/profile/baseline run"]],
            },
        )
        assert names(run.with_name("baseline run")) == before
        assert not run.exists()
        _, reply = await open_profile(answer["path"])
        assert reply.payload is not None

    @pytest.mark.parametrize("name", ["best", "best.xplane.pb"])
    async def test_a_file_keeps_its_suffix_and_takes_what_belongs_to_it_along(
        self, jp_root_dir, rename, name
    ):
        folder = jp_root_dir / "loose"
        for file in (
            "h.xplane.pb",
            "h.trace.json.gz",
            "h.memory_profile.json.gz",
            "h.txt",
            "hh.xplane.pb",
            "nbprof.json",
        ):
            place(folder, file, b"")
        status, answer = await rename("loose/h.xplane.pb", name)
        assert (status, answer["path"]) == (200, "loose/best.xplane.pb")
        moved = [
            (f"loose/h.{end}", f"loose/best.{end}")
            for end in ("xplane.pb", "memory_profile.json.gz", "trace.json.gz")
        ]
        assert list(map(tuple, answer["moves"])) == moved
        assert names(folder) == [
            "best.memory_profile.json.gz", "best.trace.json.gz", "best.xplane.pb", "h.txt", "hh.xplane.pb", "nbprof.json",
        ]  # fmt: skip

    async def test_a_file_in_the_root_and_a_torch_trace(self, jp_root_dir, rename):
        place(jp_root_dir, "w.1700000000000.pt.trace.json", torch_trace())
        place(jp_root_dir, "w.1700000000000.memory_snapshot.pickle", b"")
        status, answer = await rename("w.1700000000000.pt.trace.json", "x.1")
        assert (status, answer["path"]) == (200, "x.1.pt.trace.json")
        assert (jp_root_dir / "x.1.memory_snapshot.pickle").is_file()

    async def test_the_same_name_is_no_error(self, run, rename):
        assert await rename(RUN, run.name) == (200, {"path": RUN, "moves": []})

    @pytest.mark.parametrize(
        "name",
        ["", " ", ".", "..", ".hidden", "a/b", "../a", "a\\b", "a\0b", "a\nb", "/etc/passwd", "C:x", "a" * 201, "é" * 150, "dot.", "\ud800", None, 1, ["a"]],
    )  # fmt: skip
    async def test_a_name_that_is_none_is_refused(self, run, rename, jp_root_dir, name):
        for path in (RUN, f"{RUN}/host-a.xplane.pb"):
            status, answer = await rename(path, name)
            assert status == 400
            assert answer["message"].endswith(".")
        assert "host-a.xplane.pb" in names(run)

    async def test_nothing_is_overwritten(self, jp_root_dir, run, rename):
        other = place(run.with_name("other"), "host.xplane.pb", b"mine")
        place(jp_root_dir / "loose", "a.xplane.pb")
        place(jp_root_dir / "loose", "a.trace.json.gz", b"")
        taken = place(jp_root_dir / "loose", "b.trace.json.gz", b"mine")
        (jp_root_dir / "loose" / "c.xplane.pb").symlink_to(jp_root_dir / "nowhere")
        for path, name in ((RUN, "other"), ("loose/a.xplane.pb", "b"), ("loose/a.xplane.pb", "c")):
            status, answer = await rename(path, name)
            assert status == 409
            assert "already" in answer["message"]
        assert other.read_bytes() == taken.read_bytes() == b"mine"
        assert (jp_root_dir / "loose" / "a.xplane.pb").exists()

    async def test_a_run_is_not_left_in_two_halves(
        self, jp_root_dir, rename, jp_serverapp, monkeypatch
    ):
        from tornado import web

        place(jp_root_dir / "loose", "a.xplane.pb")
        place(jp_root_dir / "loose", "a.trace.json.gz", b"")
        manager = jp_serverapp.contents_manager
        move = type(manager).rename_file

        async def refuse(self, old, new):
            if old.endswith(".gz"):
                raise web.HTTPError(403, "Permission denied")
            return await move(self, old, new)

        monkeypatch.setattr(type(manager), "rename_file", refuse)
        status, answer = await rename("loose/a.xplane.pb", "b")
        assert status == 403
        assert "permissions" in answer["message"]
        assert names(jp_root_dir / "loose") == ["a.trace.json.gz", "a.xplane.pb"]


class TestDelete:
    async def test_a_run_folder_goes_whole(self, run, delete):
        assert await delete(RUN) == (200, {"deleted": [RUN], "problems": []})
        assert names(run.parent) == []

    async def test_what_is_no_part_of_the_run_stays(self, run, delete):
        (run / "thoughts.ipynb").write_text("mine")
        (run / "more").mkdir()
        assert (await delete(RUN))[0] == 200
        assert names(run) == ["more", "thoughts.ipynb"]

    async def test_of_ranks_beside_other_things_only_the_ranks_go(self, jp_root_dir, delete):
        folder = jp_root_dir / "ranks"
        for rank in range(2):
            place(folder, f"rank{rank}.pt.trace.json", torch_trace())
        place(folder, "config.json", b'{"a": 1}')
        assert (await delete("ranks"))[0] == 200
        assert names(folder) == ["config.json"]

    async def test_a_file_takes_what_belongs_to_it_along(self, jp_root_dir, delete):
        folder = jp_root_dir / "loose"
        for file in ("h.xplane.pb", "h.trace.json.gz", "h.txt", "nbprof.json"):
            place(folder, file, b"")
        assert (await delete("loose/h.xplane.pb"))[0] == 200
        assert names(folder) == ["h.txt"]
        for file in ("h.xplane.pb", "i.xplane.pb", "nbprof.json"):
            place(folder, file, b"")
        assert (await delete("loose/h.xplane.pb"))[0] == 200
        assert names(folder) == ["h.txt", "i.xplane.pb", "nbprof.json"]

    async def test_several_and_those_that_could_not_be(self, jp_root_dir, run, delete):
        place(jp_root_dir / "loose", "a.xplane.pb")
        status, answer = await delete("gone.xplane.pb", "loose/a.xplane.pb", RUN, "../x")
        assert status == 200
        assert answer["deleted"] == ["loose/a.xplane.pb", RUN]
        assert [problem["path"] for problem in answer["problems"]] == ["gone.xplane.pb", "../x"]

    async def test_the_trash_is_honoured(self, run, delete, jp_serverapp, monkeypatch):
        trashed = []
        monkeypatch.setattr(
            "jupyter_server.services.contents.filemanager.send2trash", trashed.append
        )
        jp_serverapp.contents_manager.delete_to_trash = True
        assert (await delete(RUN))[0] == 200
        assert trashed == [str(run)]
        (run / "notes.md").touch()
        trashed.clear()
        assert (await delete(RUN))[0] == 200
        # They are there still: nothing took them away here.
        assert sorted(trashed) == [str(run / name) for name in names(run) if name != "notes.md"]

    async def test_a_trash_that_takes_nothing_is_told(self, run, delete, jp_serverapp, monkeypatch):
        def full(_):
            raise OSError("disk full")

        monkeypatch.setattr("jupyter_server.services.contents.filemanager.send2trash", full)
        jp_serverapp.contents_manager.delete_to_trash = True
        status, answer = await delete(RUN)
        assert status == 400
        assert "delete_to_trash" in answer["message"]
        assert "host-a.xplane.pb" in names(run)

    async def test_a_link_is_deleted_and_not_what_it_leads_to(self, jp_root_dir, run, delete):
        (jp_root_dir / "link.xplane.pb").symlink_to(run / "host-a.xplane.pb")
        assert (await delete("link.xplane.pb"))[0] == 200
        assert not os.path.lexists(jp_root_dir / "link.xplane.pb")
        assert "host-a.xplane.pb" in names(run)


@pytest.mark.parametrize("what", ["rename", "delete", "download"])
class TestNoRun:
    """What the file browser is for."""

    @pytest.fixture
    def ask(self, rename, delete, download):
        async def ask(what, path):
            if what == "download":
                answer = await download(path)
                return answer.code, json.loads(answer.body)
            return await (rename(path, "x") if what == "rename" else delete(path))

        return ask

    @pytest.mark.parametrize(
        "path",
        [
            "",
            "/",
            "logs",
            "logs/plugins/profile",
            "notes",
            "notes/n.ipynb",
            "notes/data.json",
            "empty",
            "pipe",
        ],
    )
    async def test_it_is_refused_and_nothing_happens(self, jp_root_dir, run, ask, what, path):
        place(jp_root_dir / "notes", "n.ipynb", b"mine")
        place(jp_root_dir / "notes", "data.json", b'{"a": 1}')
        (jp_root_dir / "empty").mkdir()
        os.mkfifo(jp_root_dir / "pipe")
        before = sorted(jp_root_dir.rglob("*"))
        status, answer = await ask(what, path)
        assert status in (404, 422)
        assert answer["message"].endswith(".")
        assert sorted(jp_root_dir.rglob("*")) == before


class TestDownload:
    async def test_a_file_comes_as_it_is(self, jp_root_dir, download):
        file = place(jp_root_dir / "loose", "höst a.xplane.pb")
        answer = await download("loose/höst a.xplane.pb")
        assert answer.code == 200
        assert answer.body == file.read_bytes()
        assert (
            answer.headers["Content-Disposition"]
            == "attachment; filename*=utf-8''h%C3%B6st%20a.xplane.pb"
        )
        assert answer.headers["Content-Type"] == "application/octet-stream"
        assert answer.headers["X-Content-Type-Options"] == "nosniff"

    async def test_a_folder_comes_as_a_zip_that_opens(
        self, run, jp_root_dir, tmp_path, download, open_profile, monkeypatch
    ):
        monkeypatch.setattr(complete_run, "BLOCK", 100)
        (run / "notes.ipynb").write_text("mine")
        answer = await download(RUN)
        assert answer.code == 200
        assert answer.headers["Content-Disposition"].endswith(f"{run.name}.zip")
        archive = zipfile.ZipFile(io.BytesIO(answer.body))
        assert archive.testzip() is None
        assert sorted(archive.namelist()) == sorted(
            f"{run.name}/{name}" for name in names(run) if name != "notes.ipynb"
        )
        assert archive.read(f"{run.name}/host-b.xplane.pb") == training_run(5)

        from nbprof.profiles.load import load

        (tmp_path / "run.zip").write_bytes(answer.body)
        assert len(load(tmp_path / "run.zip").hosts) == 2

    async def test_links_in_a_folder_lead_nowhere(self, run, jp_root_dir, tmp_path, download):
        secret = place(tmp_path / "outside", "secret.xplane.pb", b"secret")
        (run / "host-c.xplane.pb").symlink_to(secret)
        (run / "below").symlink_to(secret.parent)
        place(jp_root_dir, ".hidden.json", b"secret")
        (run / "d.json").symlink_to(jp_root_dir / ".hidden.json")
        answer = await download(RUN)
        archive = zipfile.ZipFile(io.BytesIO(answer.body))
        assert not any(b"secret" in archive.read(name) for name in archive.namelist())
        assert len(archive.namelist()) == 5

    async def test_what_is_cut_short_meanwhile_is_no_whole_answer(self, run, download, monkeypatch):
        """Who downloads must not take half of a file, or of an archive, for all of it."""
        blocks = complete_run.blocks

        def cut(file, top):
            for block in blocks(file, top):
                yield block[:10]
                raise complete_run.ReadError("it was truncated while it was read.", path=file.name)

        monkeypatch.setattr(complete_run, "blocks", cut)
        for path in (RUN, f"{RUN}/host-a.xplane.pb"):
            with pytest.raises(HTTPStreamClosedError):
                await download(path)

    async def test_one_that_vanished_before_it_began_is_a_sentence(
        self, run, download, monkeypatch
    ):
        def gone(file, top):
            raise FileNotFoundError(2, "No such file or directory")
            yield

        monkeypatch.setattr(complete_run, "blocks", gone)
        for path in (RUN, f"{RUN}/host-a.xplane.pb"):
            answer = await download(path)
            assert answer.code == 404
            assert json.loads(answer.body)["message"].endswith(".")
