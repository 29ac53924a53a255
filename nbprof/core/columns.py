"""Tables of typed columns: NumPy arrays of equal length, under names that are declared once.

A table is a class, and its columns are attributes of it:

    class Kernels(Columns):
        '''Executions of GPU kernels.'''

        event = int64("Index into `Trace.events`.")
        duration = int64("In ps.")

`Kernels(event=rows, duration=lengths)` are its rows, and `kernels.duration` is an array whose dtype
mypy knows.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import cache
from typing import TYPE_CHECKING, Any, ClassVar, Generic, TypeVar, overload

import numpy as np
import numpy.typing as npt
import pandas as pd

if TYPE_CHECKING:
    from typing_extensions import Self

S = TypeVar("S", bound=np.generic)


class Column(Generic[S]):
    """One column of a table.

    Parameters
    ----------
    dtype : type
    meaning : str
        One sentence.
    optional : bool
        Some producers do not record it.
    """

    def __init__(self, dtype: type[S], meaning: str, *, optional: bool = False) -> None:
        self.dtype: np.dtype[S] = np.dtype(dtype)
        self.meaning = meaning
        self.optional = optional
        self.name = ""

    def __set_name__(self, table: type, name: str) -> None:
        self.name = name

    @overload
    def __get__(self, rows: None, table: type) -> Column[S]: ...

    @overload
    def __get__(self, rows: Columns, table: type) -> npt.NDArray[S]: ...

    def __get__(self, rows: Columns | None, table: type) -> Column[S] | npt.NDArray[S]:
        # The arrays of a table stand in its instance dictionary, which comes first: this is reached
        # for absent columns only.
        if rows is None:
            return self
        raise AttributeError(
            f"these {table.__name__} have no column {self.name!r}: it was not recorded"
        )


def int64(meaning: str, *, optional: bool = False) -> Column[np.int64]:
    """A column of int64."""
    return Column(np.int64, meaning, optional=optional)


def int32(meaning: str, *, optional: bool = False) -> Column[np.int32]:
    """A column of int32."""
    return Column(np.int32, meaning, optional=optional)


def int16(meaning: str, *, optional: bool = False) -> Column[np.int16]:
    """A column of int16."""
    return Column(np.int16, meaning, optional=optional)


def int8(meaning: str, *, optional: bool = False) -> Column[np.int8]:
    """A column of int8."""
    return Column(np.int8, meaning, optional=optional)


def float64(meaning: str, *, optional: bool = False) -> Column[np.float64]:
    """A column of float64, with NaN for unknown values."""
    return Column(np.float64, meaning, optional=optional)


def boolean(meaning: str, *, optional: bool = False) -> Column[np.bool_]:
    """A column of bool."""
    return Column(np.bool_, meaning, optional=optional)


def text(meaning: str, *, optional: bool = False) -> Column[np.object_]:
    """A column of str, as objects."""
    return Column(np.object_, meaning, optional=optional)


class Columns:
    """The rows of a table, column by column. Derive a class to declare a table.

    Parameters
    ----------
    **arrays : array_like
        The columns, cast to their dtypes without a copy where possible. A scalar fills its column.

    Raises
    ------
    TypeError
        A column is missing or not declared.
    ValueError
        Columns differ in length.
    """

    __slots__ = ("__dict__", "__weakref__", "_frame", "_length")

    _frame: pd.DataFrame | None
    _length: int

    columns: ClassVar[dict[str, Column[Any]]] = {}
    """The declared columns by name, those of base classes first."""

    def __init_subclass__(cls) -> None:
        declared = {name: value for name, value in vars(cls).items() if isinstance(value, Column)}
        cls.columns = {**cls.columns, **declared}

    def __init__(self, **arrays: npt.ArrayLike) -> None:
        if not arrays.keys() <= self.columns.keys():
            unknown = sorted(arrays.keys() - self.columns.keys())
            raise TypeError(
                f"{type(self).__name__} has no column {', '.join(unknown)}; it has"
                f" {', '.join(self.columns)}"
            )
        values: dict[str, npt.NDArray[Any]] = {}
        for name, column in self.columns.items():
            if name in arrays:
                values[name] = np.asarray(arrays[name], column.dtype)
            elif not column.optional:
                raise TypeError(f"{type(self).__name__} needs the column {name}")
        length = next((len(array) for array in values.values() if array.ndim), 0)
        for name, array in values.items():
            if not array.ndim:
                values[name] = np.full(length, array, array.dtype)
            elif array.shape != (length,):
                raise ValueError(
                    f"{type(self).__name__}.{name} has the shape {array.shape}, other columns have"
                    f" {length} rows"
                )
        self._fill(values, length)

    def _fill(self, arrays: Mapping[str, npt.NDArray[Any]], length: int) -> None:
        self.__dict__.update(arrays)
        object.__setattr__(self, "_length", length)
        object.__setattr__(self, "_frame", None)

    @classmethod
    def _of_arrays(cls, arrays: Mapping[str, npt.NDArray[Any]], length: int) -> Self:
        rows = cls.__new__(cls)
        rows._fill(arrays, length)
        return rows

    @classmethod
    def empty(cls) -> Self:
        """The table without rows, and without its optional columns."""
        required = {name: column for name, column in cls.columns.items() if not column.optional}
        arrays = {name: np.zeros(0, column.dtype) for name, column in required.items()}
        return cls._of_arrays(arrays, 0)

    @classmethod
    def of(cls, *frames: pd.DataFrame) -> Self:
        """The rows of one or several DataFrames, which may have other columns besides."""
        if not frames:
            return cls.empty()
        arrays: dict[str, npt.NDArray[Any]] = {}
        for name, column in cls.columns.items():
            if column.optional and not all(name in frame for frame in frames):
                continue
            values = [frame[name].to_numpy() for frame in frames]
            if len(values) == 1:
                arrays[name] = values[0]
            else:
                arrays[name] = np.concatenate(values, dtype=column.dtype, casting="unsafe")
        return cls(**arrays)

    @classmethod
    def concat(cls, parts: Sequence[Columns]) -> Self:
        """The rows of several tables, one after the other; they may have other columns besides.
        Optional columns need all of them.
        """
        if not parts:
            return cls.empty()
        with_rows = [part for part in parts if len(part)] or parts[:1]
        arrays = {}
        for name, column in cls.columns.items():
            if column.optional and not all(name in part for part in parts):
                continue
            values = [part.__dict__[name] for part in with_rows]
            if len(values) == 1:
                arrays[name] = values[0].astype(column.dtype, copy=False)
            else:
                arrays[name] = np.concatenate(values, dtype=column.dtype, casting="unsafe")
        return cls._of_arrays(arrays, sum(map(len, parts)))

    def __len__(self) -> int:
        return self._length

    def __contains__(self, name: object) -> bool:
        return name in self.__dict__

    def __setattr__(self, name: str, value: object) -> None:
        raise AttributeError(
            f"{type(self).__name__} cannot be changed; with_() returns rows with other columns"
        )

    def __repr__(self) -> str:
        return f"<{type(self).__name__}, {len(self):,} rows: {', '.join(self.__dict__)}>"

    @property
    def arrays(self) -> Mapping[str, npt.NDArray[Any]]:
        """The columns by name; optional ones only where they were recorded."""
        return self.__dict__

    def take(self, index: npt.NDArray[Any] | slice) -> Self:
        """Some rows, by position or by a boolean mask."""
        arrays = {name: array[index] for name, array in self.__dict__.items()}
        return self._of_arrays(arrays, len(next(iter(arrays.values()), ())))

    def with_(self, **arrays: npt.ArrayLike) -> Self:
        """The same rows with some columns replaced or added."""
        return type(self)(**{**self.__dict__, **arrays})

    def frame(self) -> pd.DataFrame:
        """The rows as a DataFrame. It shares the arrays and is built once: do not change it in
        place.
        """
        if not len(self):
            return _frame_without_rows(
                tuple((name, array.dtype.str) for name, array in self.__dict__.items())
            ).copy()
        if self._frame is None:
            object.__setattr__(self, "_frame", _without_copies(self.__dict__))
        assert self._frame is not None
        return self._frame


@cache
def _frame_without_rows(columns: tuple[tuple[str, str], ...]) -> pd.DataFrame:
    """An empty DataFrame of the columns with these names and dtypes."""
    arrays = {name: np.zeros(0, dtype) for name, dtype in columns}
    return _without_copies(arrays, pd.RangeIndex(0))


def _without_copies(
    arrays: Mapping[str, npt.NDArray[Any]], index: pd.Index | None = None
) -> pd.DataFrame:
    # An index of objects stays one, where pandas would look into an array for strings.
    columns = {
        name: pd.Index(array, dtype=object) if array.dtype == object else array
        for name, array in arrays.items()
    }
    return pd.DataFrame(columns, index=index, copy=False)
