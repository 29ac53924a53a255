"""The history of PyTorch's CUDA allocator, as https://pytorch.org/memory_viz reads it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from nbprof.capture import notes
from nbprof.core.receipt import Note

ENTRIES = 200_000
"""Allocations and frees that are kept, the most recent ones; at most about 20 MB on disk."""


class AllocatorHistory:
    """The history of the CUDA allocator from `begin` to `end`."""

    def __init__(self, torch: Any, *, stacks: bool) -> None:
        self._torch = torch
        self._stacks = stacks
        self._on = False
        self._over = False
        self._notes: list[Note] = []

    @classmethod
    def begin(cls, torch: Any, *, stacks: bool) -> AllocatorHistory | None:
        """Begin if CUDA is in use already; None without CUDA, or if the user records it already."""
        cuda = getattr(torch, "cuda", None)
        if (
            cuda is None
            or not getattr(getattr(torch, "version", None), "cuda", None)
            or not cuda.is_available()
        ):
            return None
        if not hasattr(getattr(cuda, "memory", None), "_record_memory_history"):
            return None
        history = cls(torch, stacks=stacks)
        # Called at once where CUDA is initialised, else when the cell does that: a context costs
        # memory, and forbids to fork.
        try:
            cuda._lazy_call(history._start)
        except Exception as error:
            history._failed("the history of the CUDA allocator could not be recorded", error)
        return history

    def _start(self) -> None:
        memory = self._torch.cuda.memory
        enabled = getattr(getattr(self._torch, "_C", None), "_cuda_isHistoryEnabled", None)
        if self._over or (enabled is not None and enabled()):
            return
        try:
            # The stack of each allocation costs more than the allocation.
            memory._record_memory_history(
                enabled="all",
                context="alloc" if self._stacks else None,
                stacks="python",
                max_entries=ENTRIES,
            )
            self._on = True
        except Exception as error:
            self._failed("the history of the CUDA allocator could not be recorded", error)

    def end(self, path: Path) -> list[Note]:
        """Write the history to `path` and stop recording it; returns notes for the user."""
        self._over = True
        if not self._on:
            return self._notes
        memory = self._torch.cuda.memory
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            memory._dump_snapshot(str(path))
            self._notes.append(notes.allocator_history(path.name))
        except Exception as error:
            self._failed("the history of the CUDA allocator could not be written", error)
        try:
            memory._record_memory_history(enabled=None)
        except Exception as error:
            self._failed("the CUDA allocator is still recording its history", error)
        return self._notes

    def _failed(self, failure: str, error: Exception) -> None:
        self._notes.append(notes.allocator_history_failed(failure, error))
