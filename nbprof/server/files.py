"""Renaming, deleting and downloading runs in JupyterLab, each with all its files."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
from collections.abc import Awaitable, Iterator
from functools import partial
from typing import TYPE_CHECKING, Any

from jupyter_server.auth.decorator import authorized
from jupyter_server.utils import ensure_async
from tornado import web
from tornado.iostream import StreamClosedError

from nbprof.core.errors import NbprofError
from nbprof.server.handlers import Handler
from nbprof.server.paths import RefusedError, could_not

if TYPE_CHECKING:
    from nbprof.server.complete_run import CompleteRun

MOST_PATHS = 1_000
"""Maximum per request."""


class FileHandler(Handler):
    """Base class of the handlers that change or send files."""

    async def run(self, path: object) -> CompleteRun:
        """The run at a path, with all its files.

        Raises
        ------
        RefusedError
        """
        from nbprof.server.complete_run import complete_run

        if not isinstance(path, str):
            raise RefusedError(400, "this request names no path.")
        look = partial(
            complete_run,
            self.root(),
            path,
            follow_links=self.app.follow_links,
            hidden=self.hidden(),
            stop=self.abandoned,
        )
        return await self.app.threads.run(look)

    async def done(self, work: Any, participle: str, path: str) -> None:
        """Wait for an operation of Jupyter's contents manager.

        Parameters
        ----------
        work : awaitable or object
            Result of the operation.
        participle : str
            "renamed", "deleted".
        path : str

        Raises
        ------
        RefusedError
        """
        try:
            await ensure_async(work)
        except web.HTTPError as error:
            raise RefusedError(
                error.status_code, _why(error, participle, self.root()), path=path
            ) from None
        except OSError as error:
            raise could_not(error, path) from None

    async def tidy(self, run: CompleteRun) -> None:
        """Remove the empty folders for checkpoints that Jupyter creates at each change, and that
        TensorBoard would list as runs.
        """
        name = getattr(
            getattr(self.contents_manager, "checkpoints", None),
            "checkpoint_dir",
            ".ipynb_checkpoints",
        )

        def remove() -> None:
            for folder in (run.home, run.real):
                with contextlib.suppress(OSError):
                    (folder / name).rmdir()

        if name:
            await asyncio.to_thread(remove)

    async def answer(self, work: Awaitable[dict[str, Any]]) -> None:
        """Answer with JSON, or with the message of an error."""
        try:
            self.finish(json.dumps(await work))
        except NbprofError as error:
            self.refuse(error)


class RenameHandler(FileHandler):
    """POST {path, name}: rename a run within its folder. The answer is {path, moves}: its new path,
    and [from, to] of all files that were moved.
    """

    @web.authenticated
    @authorized("write", "contents")  # type: ignore[untyped-decorator]
    async def post(self) -> None:
        """Rename a run."""
        await self.answer(self._rename())

    async def _rename(self) -> dict[str, Any]:
        from nbprof.server.complete_run import renamed

        asked = self.asked()
        run = await self.run(asked.get("path"))
        moves = await asyncio.to_thread(renamed, run, asked.get("name"))
        manager: Any = self.contents_manager
        moved = []
        try:
            for before, after in moves:
                await self.done(manager.rename(before, after), "renamed", before)
                moved.append((before, after))
        except RefusedError:
            # All files of a run, or none.
            for before, after in reversed(moved):
                with contextlib.suppress(RefusedError):
                    await self.done(manager.rename(after, before), "renamed", after)
            raise
        finally:
            await self.tidy(run)
        return {"path": moves[0][1] if moves else run.path, "moves": moves}


class DeleteHandler(FileHandler):
    """POST {paths: [...]}: delete runs like Jupyter deletes files, into the trash if so configured.

    The answer is {"deleted": [path, ...], "problems": [{path, message}]}; if nothing could be
    deleted, it is the first problem.
    """

    @web.authenticated
    @authorized("write", "contents")  # type: ignore[untyped-decorator]
    async def post(self) -> None:
        """Delete runs."""
        await self.answer(self._delete())

    async def _delete(self) -> dict[str, Any]:
        paths = self.asked().get("paths")
        if (
            not isinstance(paths, list)
            or not paths
            or not all(isinstance(path, str) for path in paths)
        ):
            raise RefusedError(400, "this request names no paths.")
        if len(paths) > MOST_PATHS:
            raise RefusedError(
                400,
                f"this request names {len(paths):,} runs; {MOST_PATHS:,} is the maximum that can be"
                " deleted at a time.",
            )
        deleted, problems = [], []
        for path in dict.fromkeys(paths):
            try:
                run = await self.run(path)
                try:
                    await self._delete_run(run)
                finally:
                    await self.tidy(run)
                deleted.append(path)
            except RefusedError as error:
                problems.append(error)
        if problems and not deleted:
            raise problems[0]
        return {
            "deleted": deleted,
            "problems": [{"path": error.path, "message": error.reason} for error in problems],
        }

    async def _delete_run(self, run: CompleteRun) -> None:
        manager: Any = self.contents_manager
        # Jupyter deletes a folder with content only into the trash, or if configured to.
        at_once = getattr(manager, "always_delete_dir", False) or (
            getattr(manager, "delete_to_trash", False) and os.name == "posix"
        )
        if run.alone and at_once:
            await self.done(manager.delete(run.path), "deleted", run.path)
            return
        for path in run.paths:
            await self.done(manager.delete(path), "deleted", path)
        if run.alone:
            # The folder may still contain other files; the user sees them.
            with contextlib.suppress(RefusedError):
                await self.done(manager.delete(run.path), "deleted", run.path)


class DownloadHandler(FileHandler):
    """GET ?path=: a file as it is, or a folder as a zip archive that is created while sending."""

    @web.authenticated
    @authorized("read", "contents")  # type: ignore[untyped-decorator]
    async def get(self) -> None:
        """Send a run."""
        # As for Jupyter's /files: another site must not make a browser fetch it.
        self.check_xsrf_cookie()
        try:
            run = await self.run(self.get_query_argument("path", None, strip=False))
            await self.until_gone(self._send(run))
        except NbprofError as error:
            if self._headers_written:
                self._abort(error)
            else:
                self.refuse(error)
        except (asyncio.CancelledError, StreamClosedError):
            if not self.request.connection.stream.closed():  # type: ignore[union-attr]
                raise

    def _abort(self, error: Exception) -> None:
        """End an answer so that it cannot be mistaken for a complete one."""
        self.log.warning("nbprof: a download was cut off: %s", error)
        self.request.connection.stream.close()  # type: ignore[union-attr]

    async def _send(self, run: CompleteRun) -> None:
        from nbprof.server.complete_run import blocks, zipped

        parts = zipped(run) if run.folder else blocks(run.real, run.confinement)
        kind = "application/zip" if run.folder else "application/octet-stream"
        try:
            # Before the headers: a file that cannot be read is an error with a status.
            part = await asyncio.to_thread(_next, parts)
            self.set_header("Content-Type", kind)
            self.set_header("X-Content-Type-Options", "nosniff")
            self.set_header("Cache-Control", "no-store")
            self.set_attachment_header(
                f"{run.real.name}.zip" if run.folder else run.path.rpartition("/")[2]
            )
            while part is not None:
                if part:
                    self.write(part)
                    await self.flush()
                part = await asyncio.to_thread(_next, parts)
        except OSError as error:
            raise could_not(error, run.path) from None
        finally:
            # An archive that is closed early writes its end.
            await asyncio.to_thread(_closed, parts)
        await self.finish(set_content_type=kind)


def _next(parts: Iterator[bytes]) -> bytes | None:
    return next(parts, None)


def _closed(parts: Any) -> None:
    parts.close()


def _why(error: web.HTTPError, participle: str, root: str) -> str:
    if error.status_code == 403:
        return (
            f"it may not be {participle}: the server does not have permission. Change the"
            " permissions of its folder."
        )
    if error.status_code == 404:
        return "the file no longer exists. Was it moved or deleted?"
    if error.status_code == 409:
        return "this name is already taken. Choose another one."
    reason = " ".join(str(error.log_message or error.reason or "").replace(root, "").split())[:300]
    remedy = ""
    if "trash" in reason:
        remedy = (
            " To delete without a trash: c.FileContentsManager.delete_to_trash = False in"
            " jupyter_server_config.py."
        )
    return f"it could not be {participle} ({reason}).{remedy}"
