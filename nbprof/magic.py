"""``%%nbprof`` and ``%nbprof``.

A first line ``%%nbprof`` is rewritten into a line magic, with the rest of the cell untouched: so the body runs as the ordinary cell it is,
with its own traceback, ``Out[n]`` and top-level await. The registered cell magic serves what cannot be rewritten: a body that begins with
another cell magic, and calls by API.
"""

from __future__ import annotations

import argparse
import ast
import re
import weakref
from typing import TYPE_CHECKING, Any, NoReturn

from IPython.core import magic
from IPython.core.error import UsageError
from IPython.core.magic import Magics, cell_magic, line_magic, magics_class, no_var_expand

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from nbprof.capture.options import Options
    from nbprof.cell import Cell, Show

# Colab's IPython is older than this decorator; there a trailing semicolon doesn't silence the nested form.
_silenced: Callable[[Any], Any] = getattr(magic, "output_can_be_silenced", lambda function: function)

_FIRST_LINE = re.compile(r"%%nbprof(?=\s|$)")
_FUTURE = re.compile(r"^\s*from\s+__future__\s+import\b", re.MULTILINE)


class _Help(Exception):  # noqa: N818 - not an error
    """``-h`` was given."""


class _Parser(argparse.ArgumentParser):
    def error(self, message: str) -> NoReturn:
        raise UsageError(f"{self.prog}: {message}. %%nbprof -h lists the options.")

    def exit(self, status: int = 0, message: str | None = None) -> NoReturn:  # noqa: ARG002
        raise _Help


def _parser() -> _Parser:
    parser = _Parser(
        prog="%%nbprof",
        add_help=False,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        description="Profile this cell and show the dashboard as its output. The profile is nbprof.last, too.",
        epilog="%nbprof [options] CODE profiles one statement, %nbprof load PATH shows a profile that exists,\n"
        "%nbprof capture HOST:PORT samples workers that run elsewhere (%nbprof capture -h), %nbprof shows the last one again.",
    )
    add = parser.add_argument
    add("-o", "--out", metavar="NAME", default="", help="variable that receives the profile after the cell")
    add("-q", "--quiet", action="store_true", help="show nothing, and keep the files only with --logdir")
    add(
        "--backend",
        metavar="NAME",
        default="auto",
        choices=("auto", "tensorflow", "jax", "torch"),
        help="auto (default), tensorflow, jax or torch",
    )
    add("--steps", metavar="A:B", default="", help="record only the steps A to B of the cell, counted from 1, both included")
    add("--warmup", metavar="N", type=int, default=None, help="leave the first N recorded steps out of averages; found by default")
    add("--every", metavar="N", type=int, default=0, help="record the window of --steps again each N steps")
    add("--seconds", metavar="S", type=float, default=None, help="stop recording S seconds after it began, at the end of a step")
    add("--limit", metavar="GB", type=float, default=None, help="stop when the process has grown by so much; a quarter of the memory")
    add("--memory", action="store_true", default=True, dest="memory", help="record allocations (default)")
    add("--no-memory", action="store_false", dest="memory", help="don't, where the framework has a switch for it")
    add("--no-shapes", action="store_false", dest="shapes", help="don't record shapes of inputs, where there is a switch for it")
    add("--stacks", action="store_true", help="record the Python stack of each op (PyTorch)")
    add("--python", action="store_true", help="record every Python call too: many events, a slower cell")
    add("--host-level", metavar="0-3", type=int, default=2, help="0 nothing, 1 what matters most, 2 ops too (default), 3 everything")
    add("--logdir", metavar="DIR", default=None, help="folder for the run, in TensorBoard's layout; nbprof-results by default")
    add("--no-save", action="store_false", dest="save", help="keep the files only as long as the profile lives")
    add("--views", metavar="A,B", default="", help="tabs to show, as overview,steps,memory; all by default")
    add("--height", metavar="PX", type=int, default=None, help="height of the dashboard; as high as its content by default")
    add("--events", metavar="N", default=None, help="events of the trace to keep in the notebook; 20,000 by default")
    add("-h", "--help", action="help", help="show this and run nothing")
    return parser


def _choices(words: Sequence[str]) -> tuple[Options, Show]:
    from nbprof.capture.options import Options, parse_steps
    from nbprof.cell import Show
    from nbprof.errors import CaptureError

    given = _parser().parse_args(list(words))
    try:
        steps = parse_steps(given.steps) if given.steps else None
        # Quiet means that nothing appears, in the working directory either.
        save = given.save and not given.quiet
        options = Options(
            backend=given.backend,
            steps=steps,
            memory=given.memory,
            python=given.python,
            host_level=given.host_level,
            logdir=given.logdir,
            save=save,
            warmup=given.warmup,
            every=given.every,
            seconds=given.seconds,
            shapes=given.shapes,
            stacks=given.stacks,
            limit_gb=given.limit,
        )
        views = [view.strip() for view in given.views.split(",") if view.strip()]
        return options, Show(given.out, given.quiet, views or None, given.height, _count(given.events))
    except CaptureError as error:
        raise UsageError(f"%%nbprof: {error}") from None


def _count(text: str | None) -> int | None:
    """A number of events as people write it: 100000, 100,000 or 100_000."""
    from nbprof.errors import CaptureError

    if text is None:
        return None
    if not re.fullmatch(r"[0-9]{1,18}|[0-9]{1,3}([,_][0-9]{3}){1,5}", text):
        raise CaptureError(f"--events takes a number from 0 on, not {text}")
    return int(re.sub("[,_]", "", text))


def _split(line: str) -> tuple[list[str], str]:
    """Return the options in front of a line and the code behind them, the code as it was written."""
    from IPython.utils.process import arg_split  # type: ignore[attr-defined]

    takes_value = {name for action in _parser()._actions if action.nargs is None for name in action.option_strings}
    words: list[str] = []
    rest = line.strip()
    while rest.startswith("-"):
        count = 2 if rest.split(None, 1)[0] in takes_value else 1
        match = re.match(rf"""((?:"[^"]*"|'[^']*'|\S)+\s*){{1,{count}}}""", rest)
        if match is None:
            break
        words += arg_split(match[0].strip(), posix=True)
        rest = rest[match.end() :]
    return words, rest


def rewrite(lines: list[str]) -> list[str]:
    """Return the lines of a cell with a first line ``%%nbprof`` turned into a call.

    It is called for every cell, and by those who only ask whether a cell is complete; so it does nothing else.
    """
    if not lines or not _FIRST_LINE.match(lines[0]):
        return lines
    arguments = lines[0][len("%%nbprof") :].strip()
    call = f"get_ipython().run_line_magic('nbprof_begin', {arguments!r})\n"
    if {"-h", "--help"} & set(arguments.split()):
        return [call]
    body = "".join(lines[1:])
    # `%%` is special on the first line only, and so is `from __future__`.
    if not body.strip() or body.lstrip().startswith("%%") or _FUTURE.search(body):
        return lines
    return [call, *lines[1:]]


@magics_class
class NbprofMagics(Magics):
    """The magics, and the cell that is being recorded for one of them."""

    def __init__(self, shell: Any) -> None:
        super().__init__(shell)
        self._ip = shell
        self._infos: list[Any] = []
        self._armed: tuple[Cell, Any] | None = None

    @no_var_expand
    @line_magic
    def nbprof_begin(self, line: str) -> None:
        """Begin to record the rest of this cell; the first line ``%%nbprof`` becomes this."""
        info = self._infos[-1] if self._infos else None
        cell = self._prepare(line, getattr(info, "raw_cell", ""))
        if cell is None:
            return
        older, self._armed = self._armed, None
        cell.begin()
        if older is not None:
            older[0].finish()
        self._armed = (cell, info)

    @_silenced
    @no_var_expand
    @cell_magic("nbprof")  # type: ignore[arg-type]
    def nbprof_cell(self, line: str, cell: str) -> Any:
        """Profile this cell and show the dashboard as its output; ``%%nbprof -h`` lists the options."""
        __tracebackhide__ = True
        prepared = self._prepare(line, cell)
        return None if prepared is None else self._run(prepared, cell)

    @_silenced
    @no_var_expand
    @line_magic("nbprof")  # type: ignore[arg-type]
    def nbprof_line(self, line: str) -> Any:
        """Profile one statement, ``load PATH`` a profile, or show the last one again."""
        __tracebackhide__ = True
        words, code = _split(line)
        if sampling := re.fullmatch(r"capture(?:\s+(?![=(\[.])(.*))?", code):
            from nbprof.sampling_magic import run

            run(self._ip, words, sampling[1] or "")
            return None
        try:
            options, show = _choices(words)
        except _Help:  # argparse has printed it
            return None
        from nbprof.cell import Cell

        prepared = Cell(self._ip, options, show, code)
        path = re.fullmatch(r"load\s+(?![=(])(.+)", code)
        if path or not code:
            self._show_existing(prepared, show, path[1].strip("\"' ") if path else "")
            return None
        return self._run(prepared, code)

    def _prepare(self, line: str, source: str) -> Cell | None:
        words, rest = _split(line)
        try:
            options, show = _choices(words)
        except _Help:  # argparse has printed it
            return None
        if rest:
            raise UsageError(f"%%nbprof: {rest.split()[0]!r} is no option; the code to profile begins on the next line")
        from nbprof.cell import Cell

        return Cell(self._ip, options, show, source)

    def _run(self, prepared: Cell, source: str) -> Any:
        """Run a text as ``%%time`` does: statements, then the value of the last expression."""
        __tracebackhide__ = True
        shell = self._ip
        text = shell.transform_cell(source)
        name = shell.compile.cache(text, shell.execution_count, raw_code=source)
        tree = shell.transform_ast(shell.compile.ast_parse(text, filename=name))
        last = None
        if tree.body and isinstance(tree.body[-1], ast.Expr):
            last = shell.compile(ast.Expression(tree.body.pop().value), name, "eval")
        body = shell.compile(tree, name, "exec")
        prepared.begin()
        try:
            exec(body, shell.user_ns)  # noqa: S102 - running the person's cell is the task
            value = eval(last, shell.user_ns) if last is not None else None  # noqa: S307
        except BaseException as error:
            prepared.finish(error)
            raise
        prepared.finish()
        return value

    def _show_existing(self, prepared: Cell, show: Show, path: str) -> None:
        from nbprof.errors import NbprofError
        from nbprof.profiles import last, load

        try:
            profile = load(path) if path else last()
        except NbprofError as error:
            raise UsageError(f"%nbprof load: {error}") from None
        if profile is None:
            raise UsageError("%nbprof: nothing has been recorded yet. %%nbprof above a cell records it; %nbprof -h lists the options.")
        if show.out:
            self._ip.user_ns[show.out] = profile
        if not show.quiet:
            prepared.present(profile)

    def pre_run_cell(self, info: Any) -> None:
        """Remember which cell is running; a cell may run others."""
        self._infos.append(info)

    def post_run_cell(self, result: Any) -> None:
        """Stop and show, if it is the recorded cell that has ended."""
        info = getattr(result, "info", None)
        if info is None or info not in self._infos:
            self._infos.clear()
        else:
            del self._infos[self._infos.index(info) :]
        if self._armed is None:
            return
        cell, own = self._armed
        if own is not None and info is not None and own is not info:
            return
        self._armed = None
        cell.finish(_error(result))

    def finish(self) -> None:
        """Stop and show what is recorded now: nobody will do so when the cell ends."""
        armed, self._armed = self._armed, None
        if armed is not None:
            armed[0].finish()


def _error(result: Any) -> BaseException | None:
    if result is None:
        return KeyboardInterrupt()
    error: BaseException | None = result.error_before_exec or result.error_in_exec
    return error


_loaded: weakref.WeakKeyDictionary[Any, NbprofMagics] = weakref.WeakKeyDictionary()


def load(shell: Any) -> None:
    """Add the magics to a shell; a second time does nothing."""
    if shell in _loaded:
        return
    magics = NbprofMagics(shell)
    shell.register_magics(magics)
    shell.input_transformers_cleanup.append(rewrite)
    shell.events.register("pre_run_cell", magics.pre_run_cell)
    shell.events.register("post_run_cell", magics.post_run_cell)
    _loaded[shell] = magics


def unload(shell: Any) -> None:
    """Take the magics away again."""
    magics = _loaded.pop(shell, None)
    if magics is None:
        return
    magics.finish()
    shell.input_transformers_cleanup.remove(rewrite)
    shell.events.unregister("pre_run_cell", magics.pre_run_cell)
    shell.events.unregister("post_run_cell", magics.post_run_cell)
    registered = shell.magics_manager.magics
    registered["cell"].pop("nbprof", None)
    for name in ("nbprof", "nbprof_begin"):
        registered["line"].pop(name, None)
