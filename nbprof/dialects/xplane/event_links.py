"""Links between events as arrays of pairs: matched by keys, followed from many events at once."""

from __future__ import annotations

import math

import numpy as np
import numpy.typing as npt
import pandas as pd

from nbprof.core.runs import expand, run_starts
from nbprof.core.trace import Int64s

NONE = np.iinfo(np.int64).max
_MOST = 1 << 62
_DENSE = 4


def match(
    up: Int64s, up_keys: list[Int64s], down: Int64s, down_keys: list[Int64s], limit: int = 0
) -> tuple[Int64s, Int64s]:
    """All pairs of rows whose keys are equal; a key that is busy on both sides is left out."""
    if not len(up) or not len(down):
        return np.zeros(0, np.int64), np.zeros(0, np.int64)
    code = _codes([np.concatenate(pair) for pair in zip(up_keys, down_keys, strict=True)])
    a, b = code[: len(up)], code[len(up) :]
    kinds = int(code.max()) + 1
    in_a, in_b = np.bincount(a, minlength=kinds), np.bincount(b, minlength=kinds)
    if limit:
        busy = (in_a >= limit) & (in_b >= limit)
        up, a = up[~busy[a]], a[~busy[a]]
        down, b = down[~busy[b]], b[~busy[b]]
        in_a = np.bincount(a, minlength=kinds)
    order = np.argsort(a, kind="stable")
    first = np.cumsum(in_a) - in_a
    rows, position = expand(first[b], in_a[b])
    return up[order][position], down[rows]


def _codes(keys: list[Int64s]) -> Int64s:
    """A number per row, equal for equal keys; the numbers are dense up to a small factor."""
    low = [int(key.min()) for key in keys]
    sizes = [int(key.max()) - first + 1 for key, first in zip(keys, low, strict=True)]
    code = np.zeros(len(keys[0]), np.int64)
    if math.prod(sizes) < _MOST:
        # Ids count up nearly always, so that all keys fit into one number.
        for key, first, size in zip(keys, low, sizes, strict=True):
            if size > 1:
                code = code * size + (key - first)
        if math.prod(sizes) <= _DENSE * len(code):
            return code
        return pd.factorize(code)[0]
    for key in keys:
        part, seen = pd.factorize(key)
        code = pd.factorize(code * len(seen) + part)[0]
    return code


def _once(values: Int64s) -> Int64s:
    """Each value once, ascending; sorting is faster here than the hashing of np.unique."""
    ordered = np.sort(values)
    return ordered[run_starts(ordered)]


class Links:
    """Links from parent to child, gone along from many events at once."""

    def __init__(self, up: Int64s, down: Int64s, count: int) -> None:
        order = np.argsort(up, kind="stable")
        self.child = down[order]
        self.many = np.bincount(up, minlength=count)
        self.first = np.cumsum(self.many) - self.many

    def below(self, events: Int64s) -> tuple[Int64s, Int64s]:
        """Pairs (index into `events`, child)."""
        run, position = expand(self.first[events], self.many[events])
        return run, self.child[position]

    def spread(self, label: Int64s, start: Int64s) -> None:
        """Gives each event the smallest label of what it hangs below, in place."""
        front = start
        while len(front := front[self.many[front] > 0]):
            many = self.many[front]
            last = np.cumsum(many)
            child = self.child[
                np.arange(last[-1]) + np.repeat(self.first[front] - (last - many), many)
            ]
            offered = np.repeat(label[front], many)
            better = offered < label[child]
            child = child[better]
            np.minimum.at(label, child, offered[better])
            # Most events have none below them, and sorting is what costs here.
            front = _once(child[self.many[child] > 0])

    def first_above(self, roots: Int64s, sign: int = 1) -> Int64s:
        """By event: smallest number, times `sign`, of the roots above it (in a circle, of itself);
        NONE.
        """
        label = np.full(len(self.many), NONE, np.int64)
        run, child = self.below(roots)
        np.minimum.at(label, child, sign * run)
        self.spread(label, _once(child))
        return label


def outermost(links: Links, roots: Int64s, level: Int64s) -> tuple[Int64s, Int64s]:
    """Roots below no other root of their level, and by event the first root that it is below."""
    free = np.ones(len(roots), np.bool_)
    levels = np.unique(level).tolist()
    label = np.zeros(0, np.int64)
    for value in levels:
        in_level = np.flatnonzero(level == value)
        level_roots, number = roots[in_level], np.arange(len(in_level))
        label = links.first_above(level_roots)
        above = label[level_roots]
        hangs = (above != NONE) & (above != number)
        if (above == number).any():
            # Links may run in a circle. A root that is the first above itself hangs below another
            # one if it is not the last, too.
            hangs |= (above == number) & (
                links.first_above(level_roots, -1)[level_roots] != -number
            )
        free[in_level] = ~hangs
    outer = roots[free]
    number = np.arange(len(outer))
    if len(levels) == 1 and len(outer) == len(roots):
        # The labels below them are known.
        label[outer] = np.minimum(label[outer], number)
        return outer, label
    label = np.full(len(links.many), NONE, np.int64)
    label[outer] = number
    links.spread(label, outer)
    return outer, label


def above(links: Links, events: Int64s, has: npt.NDArray[np.bool_]) -> Int64s:
    """The event itself or the nearest event above with `has`, -1; links are child to parent."""
    result = np.where(has[events], events, -1)
    run = np.flatnonzero(result < 0)
    event = events[run]
    seen = np.zeros(0, np.int64)
    while len(run):
        turn, parent = links.below(event)
        pair = _once((run[turn] << 32) | parent)
        pair = pair[~np.isin(pair, seen)]
        seen = np.concatenate([seen, pair])
        run, event = pair >> 32, pair & 0xFFFFFFFF
        reached = has[event]
        # Of several at one distance the first.
        result[run[reached][::-1]] = event[reached][::-1]
        open_ = result[run] < 0
        run, event = run[open_], event[open_]
    return result
