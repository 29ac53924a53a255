"""``%%nbprof`` and ``%nbprof``.

A first line ``%%nbprof`` is rewritten into a line magic, with the rest of the cell untouched: so
the body runs as the ordinary cell it is, with its own traceback, ``Out[n]`` and top-level await.
The registered cell magic serves what cannot be rewritten: a body that begins with another cell
magic, and calls by API.
"""

from __future__ import annotations

import ast
import builtins
import re
import sys
import warnings
from typing import TYPE_CHECKING, Any

from IPython.core import magic
from IPython.core.error import UsageError
from IPython.core.magic import Magics, cell_magic, line_magic, magics_class, no_var_expand

from nbprof.capture.shield import Shield, shielded
from nbprof.notebook import cell_loops, defaults, profile_button, tracebacks
from nbprof.notebook.options_line import Help, choices, parser, split, standing, words_of

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from nbprof.notebook.cell import Cell, Show
    from nbprof.profiles.profile import Profile

# Colab's IPython is older than this decorator; there a trailing semicolon doesn't silence the
# nested form.
_silenced: Callable[[Any], Any] = getattr(
    magic, "output_can_be_silenced", lambda function: function
)

_FIRST_LINE = re.compile(r"%%nbprof(?=\s|$)")
_NAME = "nbprof"
_IMPORT = re.compile(rf"^[^\n#]*\bimport\b[^\n]*\b{_NAME}\b", re.MULTILINE)
_FUTURE = re.compile(r"^\s*from\s+__future__\s+import\b", re.MULTILINE)


def rewrite(lines: list[str]) -> list[str]:
    """Return the lines of a cell with a first line ``%%nbprof`` turned into a call.

    It is called for every cell, and by those who only ask whether a cell is complete; so it does
    nothing else.
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
        self.waiting = profile_button.Waiting()
        self._pressed: profile_button.Request | None = None
        self._tracebacks = tracebacks.Watch(shell, self._exception_left)
        self.interrupts: Any = None
        self.loops: Any = None
        self.pushed_name = False
        """True if the package was added to the user's namespace."""
        self.runs_statement = False
        """True while a statement or a text is run by a magic, even before its recording begins."""

    @property
    def namespace(self) -> dict[str, Any]:
        """The notebook's variables."""
        namespace: dict[str, Any] = self._ip.user_ns
        return namespace

    @property
    def running_text(self) -> str:
        """The text of the cell that runs."""
        return str(getattr(self._infos[-1], "raw_cell", "")) if self._infos else ""

    @property
    def numbers(self) -> dict[str, int]:
        """Execution counts of cells, by their file names."""
        files = getattr(self._ip.compile, "_filename_map", None)
        return files if isinstance(files, dict) else {}

    def transformed(self, text: str) -> str:
        """A cell's text as Python."""
        return str(self._ip.transform_cell(text))

    @no_var_expand
    @line_magic
    def nbprof_begin(self, line: str) -> None:
        """Begin to record the rest of this cell; the first line ``%%nbprof`` becomes this."""
        __tracebackhide__ = True
        info = self._infos[-1] if self._infos else None
        # A Ctrl-C comes later, so that its traceback is of the cell.
        with shielded(soon=True):
            cell = self._prepare(line, getattr(info, "raw_cell", ""))
            if cell is not None:
                self._arm(cell, info)

    def _arm(self, cell: Cell, info: Any) -> None:
        """Begin to record a cell, which ends with it."""
        older, self._armed = self._armed, None
        cell.begin()
        if older is not None:
            older[0].finish()
        self._armed = (cell, info)
        self._tracebacks.begin()

    def _exception_left(self) -> None:
        """An exception has left a cell, whose traceback is shown next."""
        if self._armed is None:
            return
        cell, info = self._armed
        if info is None or (self._infos and self._infos[-1] is info):
            cell.code_ends()

    @_silenced
    @no_var_expand
    @cell_magic("nbprof")  # type: ignore[arg-type]
    def nbprof_cell(self, line: str, cell: str) -> Any:
        """Profile this cell and show the dashboard; ``%%nbprof -h`` lists the options."""
        __tracebackhide__ = True
        prepared = self._prepare(line, cell)
        if prepared is None:
            return None
        return self._run(prepared, cell)

    @_silenced
    @no_var_expand
    @line_magic("nbprof")  # type: ignore[arg-type]
    def nbprof_line(self, line: str) -> Any:
        """Profile one statement, ``load PATH`` a profile, show the last one, its ``brief``, or what
        takes ``memory`` now.
        """
        __tracebackhide__ = True
        words, code = split(line)
        sampling = re.fullmatch(r"capture(?:\s+(?![=(\[.])(.*))?", code)
        if sampling:
            from nbprof.notebook.sampling_magic import run

            run(self._ip, words, sampling[1] or "")
            return None
        set_defaults = re.fullmatch(r"defaults(?:\s+(none|-.*))?", code)
        try:
            if set_defaults:
                _set_defaults(words, set_defaults[1] or "")
                return None
            options, show = choices(words)
        except Help:  # argparse has printed it
            return None
        brief = re.fullmatch(r"brief(?:\s+(\d{1,9}))?", code)
        if brief:
            _show_brief(self._ip, words, brief[1])
            return None
        if code == "memory":
            from nbprof.notebook import memory_magic

            memory_magic.run(self._ip, words)
            return None
        from nbprof.notebook.cell import Cell

        prepared = Cell(self._ip, options, show, code, self._notes(words))
        path = re.fullmatch(r"load\s+(?![=(])(.+)", code)
        if path or not code:
            self._show_existing(prepared, show, path[1].strip("\"' ") if path else "")
            return None
        return self._run(prepared, code)

    def _prepare(self, line: str, source: str) -> Cell | None:
        words, rest = split(line)
        pressed = self._pressed
        try:
            with defaults.instead(pressed.options if pressed is not None else None):
                options, show = choices(words)
                notes = self._notes(words)
        except Help:  # argparse has printed it
            return None
        if rest:
            raise UsageError(
                f"%%nbprof: {rest.split()[0]!r} is not an option; the code to profile starts on the"
                " next line"
            )
        from nbprof.notebook.cell import Cell

        return Cell(self._ip, options, show, source, notes)

    def check(self, options: Sequence[str] | None) -> None:
        """Check options of a front end.

        Raises
        ------
        UsageError
            Unknown option, or invalid value.
        """
        with defaults.instead(options):
            choices([])

    def _notes(self, typed: Sequence[str]) -> list[str]:
        """Notes for the receipt: the button that was pressed, and options that the text lacks."""
        held = defaults.words()
        if self._pressed is not None:
            return [self._pressed.note([*held, *typed])]
        return [f"default options in effect: {defaults.line(held)}"] if held else []

    def _begin_pressed(self, request: profile_button.Request, info: Any) -> None:
        """Begin to record a cell without the magic, before its first line runs."""
        if profile_button.typed(info.raw_cell):
            # It has the magic as well, possibly with options.
            self._pressed = request
            return
        if not self._compiles(info.raw_cell):
            return
        from nbprof.notebook.cell import Cell

        try:
            with defaults.instead(request.options):
                options, show = choices([])
                cell = Cell(
                    self._ip, options, show, info.raw_cell, [request.note(defaults.words())]
                )
                cell.stored = False
        except UsageError as error:
            sys.stderr.write(f"nbprof: {error}\n")
            return
        self._arm(cell, info)

    def _compiles(self, text: str) -> bool:
        """Return whether a cell compiles; otherwise it only shows its error."""
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                flags = self._ip.compile.flags | ast.PyCF_ALLOW_TOP_LEVEL_AWAIT
                compile(self._ip.transform_cell(text), "<cell>", "exec", flags, dont_inherit=True)
        except Exception:
            return False
        return True

    def _run(self, prepared: Cell, source: str) -> Any:
        """Run a text as ``%%time`` does: statements, then the value of the last expression."""
        __tracebackhide__ = True
        before, self.runs_statement = self.runs_statement, True
        try:
            return self._run_recorded(prepared, source)
        finally:
            self.runs_statement = before

    def _run_recorded(self, prepared: Cell, source: str) -> Any:
        __tracebackhide__ = True
        shell = self._ip
        text = shell.transform_cell(source)
        name = shell.compile.cache(text, shell.execution_count, raw_code=source)
        tree = shell.transform_ast(shell.compile.ast_parse(text, filename=name))
        last = None
        if tree.body and isinstance(tree.body[-1], ast.Expr):
            last = shell.compile(ast.Expression(tree.body.pop().value), name, "eval")
        body = shell.compile(tree, name, "exec")
        try:
            prepared.begin()
            exec(body, shell.user_ns)  # noqa: S102 - running the user's cell is the task
            value = eval(last, shell.user_ns) if last is not None else None  # noqa: S307
        except BaseException as error:
            prepared.finish(error)
            raise
        prepared.finish()
        return value

    def _show_existing(self, prepared: Cell, show: Show, path: str) -> None:
        from nbprof.core.errors import NbprofError

        try:
            # A Ctrl-C must not leave half a module behind.
            with Shield() as shield, shield.opened():
                from nbprof.profiles.load import load

                profile = load(path) if path else _last()
        except NbprofError as error:
            raise UsageError(f"%nbprof load: {error}") from None
        if show.out:
            self._ip.user_ns[show.out] = profile
        if not show.quiet:
            prepared.present(profile)

    def pre_run_cell(self, info: Any) -> None:
        """Remember which cell is running; a cell may run others."""
        self._infos.append(info)
        if len(self._infos) == 1:
            self._pressed = None
        request = self.waiting.take(info)
        if request is not None:
            # An exception here would be shown, and not stop the cell.
            with shielded(soon=True):
                self._begin_pressed(request, info)

    def post_run_cell(self, result: Any) -> None:
        """Stop and show, if it is the recorded cell that has ended."""
        # An interrupt in between would leave the recording running.
        with Shield():
            self._post_run_cell(result)

    def _post_run_cell(self, result: Any) -> None:
        info = getattr(result, "info", None)
        # If IPython itself fails, as on an exception that it cannot show, the info is another one.
        has_begun = info is not None and info in self._infos
        if has_begun:
            del self._infos[self._infos.index(info) :]
        else:
            self._infos.clear()
        if self._armed is None:
            return
        cell, armed_info = self._armed
        if has_begun and armed_info is not None and armed_info is not info:
            return
        self._armed = None
        self._tracebacks.end()
        cell.finish(_error(result))

    def finish(self) -> None:
        """Stop and show the current recording, before the magics are removed."""
        armed, self._armed = self._armed, None
        self._tracebacks.end()
        if armed is not None:
            armed[0].finish()


def _last() -> Profile:
    from nbprof.profiles.load import last

    profile = last()
    if profile is None:
        raise UsageError(
            "%nbprof: nothing has been recorded yet. Put %%nbprof above a cell to record it;"
            " %nbprof -h lists the options."
        )
    return profile


def _show_brief(shell: Any, words: Sequence[str], tokens: str | None) -> None:
    """``%nbprof brief``: show the brief as the output of the cell, for people and models."""
    if words:
        raise UsageError(f"%nbprof brief takes a number of tokens and no options, not {words[0]}")
    from nbprof.core.errors import NbprofError

    try:
        with Shield() as shield, shield.opened():
            from nbprof.profiles.brief import brief

            text = brief(_last(), 1500 if tokens is None else int(tokens))
    except NbprofError as error:
        raise UsageError(f"%nbprof brief: {error}") from None
    shell.display_pub.publish({"text/markdown": text, "text/plain": text})


def _set_defaults(before: Sequence[str], after: str) -> None:
    """``%nbprof defaults``: set and print the default options."""
    words = list(before)
    if after != "none":
        words += words_of(after)
    if words:
        previous = defaults.chosen()
        _check_defaults(words)
        defaults.choose(words)
        try:
            choices([])
        except BaseException:
            defaults.choose(previous)
            raise
    elif after == "none":
        defaults.choose([])
    standing()
    chosen = defaults.words()
    message = "No default options are set. %%nbprof -h lists all options."
    if chosen:
        message = f"%nbprof defaults {defaults.line(chosen)}"
    print(message)  # noqa: T201


def _check_defaults(words: Sequence[str]) -> None:
    options = parser("%nbprof defaults").parse_args(list(words))
    if options.out:
        raise UsageError(
            "%nbprof defaults: -o names the variable of one cell, so it cannot be a default"
        )
    if options.probe or options.in_place:
        raise UsageError("%nbprof defaults: --probe runs a cell twice, so it cannot be a default")
    if options.try_:
        raise UsageError("%nbprof defaults: --try runs a cell again, so it cannot be a default")


def _error(result: Any) -> BaseException | None:
    if result is None:
        # IPython itself was stopped, by Ctrl-C or by an exception that it could not show.
        return sys.exc_info()[1] or KeyboardInterrupt()
    error: BaseException | None = result.error_before_exec or result.error_in_exec
    return error


def load(shell: Any) -> None:
    """Add the magics to a shell; a second time does nothing."""
    if shell in profile_button.loaded:
        return
    magics = NbprofMagics(shell)
    shell.register_magics(magics)
    shell.input_transformers_cleanup.append(rewrite)
    shell.events.register("pre_run_cell", magics.pre_run_cell)
    shell.events.register("post_run_cell", magics.post_run_cell)
    magics.interrupts = tracebacks.show_interrupts(shell)
    magics.loops = cell_loops.install(shell, magics)
    profile_button.loaded[shell] = magics
    if not _is_taken(shell):
        # Advice and messages are code to paste, such as `for batch in nbprof.steps(loader)`.
        # Hidden: %who lists the user's names.
        shell.push({_NAME: sys.modules[_NAME]}, interactive=False)
        magics.pushed_name = True


def unload(shell: Any) -> None:
    """Remove the magics from a shell."""
    magics = profile_button.loaded.pop(shell, None)
    if not isinstance(magics, NbprofMagics):
        return
    magics.finish()
    shell.input_transformers_cleanup.remove(rewrite)
    shell.events.unregister("pre_run_cell", magics.pre_run_cell)
    shell.events.unregister("post_run_cell", magics.post_run_cell)
    tracebacks.show_as_before(shell, magics.interrupts)
    cell_loops.remove(shell, magics.loops)
    registered = shell.magics_manager.magics
    registered["cell"].pop("nbprof", None)
    for name in ("nbprof", "nbprof_begin"):
        registered["line"].pop(name, None)
    if magics.pushed_name and not _is_imported(shell):
        # Only if the user has not assigned another value since.
        shell.drop_by_id({_NAME: sys.modules[_NAME]})


def _is_taken(shell: Any) -> bool:
    """Return whether the name of the package is in use in the notebook."""
    return _NAME in shell.user_ns or hasattr(builtins, _NAME)


def _is_imported(shell: Any) -> bool:
    """Return whether a cell of this session imports the package, so that the name is the user's."""
    return any(_IMPORT.search(text) for text in shell.history_manager.input_hist_raw)
