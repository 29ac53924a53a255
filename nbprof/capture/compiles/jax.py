"""Compilations of JAX: their durations, and the reasons that it logs for cache misses.

`jax_explain_cache_misses` itself is not set: a setting that a cell changes meanwhile could not be
told from ours. Its caches look it up in the module `config`, which is replaced where they do.
"""

from __future__ import annotations

import contextlib
import logging
import re
import sys
import threading
import time
from collections.abc import Callable
from functools import partial
from types import FrameType
from typing import TYPE_CHECKING, Any

from nbprof.capture.compiles.jax_lowered import Lowerings, compiled_program
from nbprof.capture.compiles.seen import code_of, seen
from nbprof.capture.patches import Patches
from nbprof.core.compile_times import AGAIN, PLACED, UNKNOWN

if TYPE_CHECKING:
    from nbprof.capture.compiles.recorder import Compiles

EXPLAINED = "TRACING CACHE MISS"
_CACHES = ("jax._src.util", "jax._src.linear_util")
"""Modules with caches that explain their misses."""
_LOGGERS = ("jax._src.interpreters.partial_eval", "jax._src.pjit")
TRACED = "/jax/core/compile/jaxpr_trace_duration"
LOWERED = "/jax/core/compile/jaxpr_to_mlir_module_duration"
COMPILED = "/jax/core/compile/backend_compile_duration"
_CACHED = {
    "/jax/compilation_cache/cache_hits": "hit",
    "/jax/compilation_cache/cache_misses": "miss",
}
_NEVER_SEEN = "never seen function"
_FUNCTION = re.compile(
    r"^(?:  for |    )(?P<name>.*?)(?: id=\d+)?(?: defined at (?P<file>.*):(?P<line>\d+))?$", re.M
)
_JITTED = re.compile(r"^(?:jit|pmap)\((.*)\)$")
_MOST_PENDING = 200
_NOT_COMPARED = (1_000, 0, "")
"""A difference that is larger than any, as JAX has them."""
MOST_EXPLAINED = 400
"""Cache misses that are explained at most."""
COMPARES, MOST_COMPARED = "diff_tracing_cache_keys", 6
"""JAX's function that compares a miss with a key before, and with how many of these it does."""
_ALWAYS_EXPLAINED, _SHARE = 50, 0.005
"""Misses that are explained in any case, and the share of the time of compiling that explaining
further ones may take.
"""


def follow(patches: Patches, compiles: Compiles) -> None:
    """Follow the compilations of JAX until `patches` are restored."""
    from jax._src import config, monitoring

    watch = Watch(compiles, config)
    monitoring.register_event_duration_secs_listener(watch.measured)
    patches.on_restore(lambda: _unregister(monitoring, "event_duration", watch.measured))
    monitoring.register_event_listener(watch.happened)
    patches.on_restore(lambda: _unregister(monitoring, "event", watch.happened))
    for name in _LOGGERS:
        logger = logging.getLogger(name)
        logger.addFilter(watch)
        patches.on_restore(partial(logger.removeFilter, watch))
    sites = getattr(sys.modules.get(_LOGGERS[0]), "callsites_with_tracing_cache_miss", None)
    if isinstance(sites, set):
        before = set(sites)
        patches.on_restore(lambda: watch.forget(sites, before))
    if hasattr(explaining := sys.modules.get(_LOGGERS[0]), COMPARES):
        patches.replace(explaining, COMPARES, watch.comparing(getattr(explaining, COMPARES)))
    for name in _CACHES:
        cache = sys.modules.get(name)
        if cache is not None and getattr(cache, "config", None) is config:
            patches.replace(cache, "config", _Explaining(config, watch))


def _unregister(monitoring: Any, kind: str, listener: Any) -> None:
    """Take a listener back, by the name that this version of JAX has for it."""
    for name in (f"unregister_{kind}_listener", f"_unregister_{kind}_listener_by_callback"):
        unregister = getattr(monitoring, name, None)
        if unregister is not None:
            # `clear_event_listeners` may have taken it already.
            with contextlib.suppress(AssertionError, ValueError):
                unregister(listener)
            return


class _Explaining:
    """JAX's module `config`, where a cache looks up whether to explain a miss."""

    def __init__(self, config: Any, watch: Watch) -> None:
        self._config = config
        self.explain_cache_misses = _Setting(config.explain_cache_misses, watch)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._config, name)


class _Setting:
    """JAX's setting, whose value the watch decides."""

    def __init__(self, setting: Any, watch: Watch) -> None:
        self._setting, self._watch = setting, watch

    @property
    def value(self) -> bool:
        return self._watch.explains()

    def __getattr__(self, name: str) -> Any:
        return getattr(self._setting, name)


class _Pending:
    """Functions that a thread has traced and lowered, and not yet compiled."""

    def __init__(self) -> None:
        self.explained: list[tuple[str, str, str]] = []
        """Names, texts and states of cache misses."""
        self.traced: dict[str, int] = {}
        self.began: dict[str, int] = {}
        self.lowered_ns: int | None = None
        self.cache = ""


class Watch(logging.Filter):
    """Puts together what JAX reports of each compilation.

    Parameters
    ----------
    compiles : Compiles
        Where they are stored.
    config : module
        JAX's own.

    Attributes
    ----------
    asked : bool
        True once the person has asked JAX to explain cache misses.
    explained : int
        Number of misses that were explained.
    """

    def __init__(self, compiles: Compiles, config: Any) -> None:
        super().__init__()
        self.asked, self.explained = False, 0
        self._compiles, self._config = compiles, config
        self._threads = threading.local()
        self._compiled: dict[str, tuple[str, int]] = {}
        """File and line of the functions that were explained and compiled, by name."""
        self._lowerings, self._lowered = Lowerings(), 0
        self._explaining_ns = self._compiling_ns = self._looked_ns = 0

    @property
    def _pending(self) -> _Pending:
        pending = getattr(self._threads, "pending", None)
        if pending is None:
            pending = self._threads.pending = _Pending()
        return pending

    def explains(self) -> bool:
        """Return the setting as caches see it: True for a miss to be explained."""
        if self._persons():
            return True
        if not self._affordable(self.explained):
            return False
        self._looked_ns = time.thread_time_ns()
        return True

    def _affordable(self, number: int) -> bool:
        """True if there is time to explain one more, after a number of them."""
        if number >= MOST_EXPLAINED or self._compiles.full:
            return False
        cheap = self._explaining_ns <= _SHARE * self._compiling_ns
        return cheap or number < _ALWAYS_EXPLAINED

    def comparing(self, original: Callable[..., Any]) -> Callable[..., Any]:
        """JAX's function that compares two keys, for a few keys before each miss."""
        missed: list[Any] = [None, 0]

        def diff_tracing_cache_keys(new_key: Any, old_key: Any) -> Any:
            if missed[0] is not new_key:
                missed[:] = new_key, 0
            missed[1] += 1
            if missed[1] > MOST_COMPARED and not self._persons():
                return _NOT_COMPARED
            return original(new_key, old_key)

        return diff_tracing_cache_keys

    def forget(self, sites: set[Any], before: set[Any]) -> None:
        """Drop what JAX remembered of misses for our explanations alone."""
        if not self.asked:
            sites.intersection_update(before)

    def _persons(self) -> bool:
        """True if the person has JAX explain cache misses."""
        asked = bool(self._config.explain_cache_misses.value)
        self.asked = self.asked or asked
        return asked

    def filter(self, record: logging.LogRecord) -> bool:
        """Take explanations; those that the person did not ask for are not logged."""
        try:
            text = record.getMessage()
            if not text.startswith(EXPLAINED):
                return True
            self._explained(text)
            return self._persons()
        except Exception:
            return True

    def _explained(self, text: str) -> None:
        self.explained += 1
        if self._looked_ns:
            self._explaining_ns += time.thread_time_ns() - self._looked_ns
            self._looked_ns = 0
        match = _FUNCTION.search(text)
        pending = self._pending
        if match is None or len(pending.explained) >= _MOST_PENDING:
            return
        state = AGAIN
        if _NEVER_SEEN in text:
            function = _explained_function()
            state = seen.state(function, code_of(function))
        pending.explained.append((match["name"], text, state))

    def happened(self, event: str, **_: Any) -> None:
        """An event of JAX: the cache on disk was asked."""
        outcome = _CACHED.get(event)
        if outcome is not None:
            self._pending.cache = outcome

    def measured(self, event: str, duration_secs: float, **about: Any) -> None:
        """A phase of a compilation has ended. Never raises."""
        if event not in (TRACED, LOWERED, COMPILED):
            return
        with contextlib.suppress(Exception):
            name = str(about.get("fun_name", ""))
            jitted = _JITTED.match(name)
            if jitted is not None:
                name = jitted[1]
            self._measured(event, name, int(duration_secs * 1e9))

    def _measured(self, event: str, name: str, took_ns: int) -> None:
        pending, now = self._pending, time.time_ns()
        if event == TRACED:
            if len(pending.traced) < _MOST_PENDING:
                pending.traced[name] = took_ns
                pending.began[name] = now - took_ns
            return
        if event == LOWERED:
            pending.lowered_ns = took_ns
            pending.began.setdefault(name, now - took_ns)
            return
        # Functions that it calls were traced for it, and are compiled with it.
        self._threads.pending = _Pending()
        self._compiling_ns += took_ns + pending.traced.get(name, 0)
        begin = pending.began.get(name, now - took_ns)
        self._compiles.add(
            "jax",
            begin,
            now - begin,
            function=name,
            trace_ns=pending.traced.get(name),
            lower_ns=pending.lowered_ns,
            compile_ns=took_ns,
            cache=pending.cache,
            **self._why(name, pending),
        )

    def _why(self, name: str, pending: _Pending) -> dict[str, Any]:
        """The explanation for the function that is compiled."""
        is_traced = any(explained == name for explained, _, _ in pending.explained)
        lowered = self._lowered_again(is_traced=is_traced)
        for explained, text, state in reversed(pending.explained):
            if explained == name:
                match = _FUNCTION.search(text)
                facts: dict[str, Any] = {"state": state}
                if state == AGAIN:
                    facts["reason"] = text.partition("closest previous key:")[2].strip() or text
                if match is not None and match["file"]:
                    facts |= {"file": match["file"], "line": int(match["line"])}
                    if len(self._compiled) < MOST_EXPLAINED:
                        self._compiled[name] = facts["file"], facts["line"]
                return facts
        if lowered:
            return lowered
        if name in pending.traced or name not in self._compiled:
            # JAX explains nothing of functions of libraries.
            return {"state": UNKNOWN}
        file, line = self._compiled[name]
        # Lowered again, it may be for another sharding, or a part of a derivative; else the same
        # program is compiled for another device.
        state = UNKNOWN if pending.lowered_ns is not None else PLACED
        return {"state": state, "file": file, "line": line}

    def _lowered_again(self, *, is_traced: bool) -> dict[str, Any]:
        """The difference of the program that is compiled from an earlier lowering of it; empty if
        that is not known.
        """
        if not self._affordable(self._lowered):
            return {}
        began = time.thread_time_ns()
        try:
            program = compiled_program()
            if program is None:
                return {}
            self._lowered += 1
            facts = self._lowerings.add(program, is_traced=is_traced)
            return facts and {**facts, "file": program.file, "line": program.line}
        except Exception:
            # Another version of JAX.
            return {}
        finally:
            self._explaining_ns += time.thread_time_ns() - began


def _explained_function() -> Any:
    """The function whose miss is being explained: a variable of JAX's that calls the logger."""
    frame: FrameType | None = sys._getframe(1)
    for _ in range(15):
        if frame is None:
            return None
        if frame.f_code.co_name.startswith("explain"):
            function = frame.f_locals.get("fun", frame.f_locals.get("f"))
            return getattr(function, "f", function)
        frame = frame.f_back
    return None
