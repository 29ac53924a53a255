"""The tables of an export of Nsight Systems, wherever they are: in a database, or each in a file of
Parquet.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt

from nbprof.core.errors import ReadError
from nbprof.core.files import SourceFile
from nbprof.core.sqlite import Column, Database, floats, integers, no_value, texts
from nbprof.core.trace import Int64s

EXTRA = (
    "reading Parquet needs pyarrow: pip install nbprof[parquet]; or export once more with  nsys"
    " export --type sqlite."
)


class Tables(Protocol):
    """Tables by name."""

    @property
    def names(self) -> list[str]:
        """Names of the tables."""

    def columns(self, table: str) -> list[str]:
        """Names of the columns of a table; none where it is missing."""

    def count(self, table: str) -> int:
        """Number of rows; 0 for a missing table."""

    def read(self, table: str, *columns: str) -> dict[str, Column]:
        """Those of some columns that it has."""


class Rows:
    """Some columns of one table; what the table lacks is NULL in each row.

    Versions of Nsight Systems differ in what they write, so that a column that is not there is no
    error.
    """

    def __init__(self, tables: Tables, table: str, *columns: str) -> None:
        self._columns = tables.read(table, *columns)
        self._count = len(next(iter(self._columns.values()), ()))

    def __len__(self) -> int:
        return self._count

    def __contains__(self, column: object) -> bool:
        return column in self._columns

    def only(self, keep: npt.NDArray[np.bool_]) -> Rows:
        """Some of the rows."""
        result = Rows.__new__(Rows)
        result._columns = {name: column[keep] for name, column in self._columns.items()}
        result._count = int(np.count_nonzero(keep))
        return result

    def ints(self, column: str, missing: int = -1) -> Int64s:
        """Whole numbers; `missing` for NULL."""
        if column not in self:
            return np.full(self._count, missing, np.int64)
        return integers(self._columns[column], missing)

    def masked(self, column: str) -> Any:
        """Whole numbers, masked where they are NULL: args of events."""
        if column not in self:
            return np.ma.MaskedArray(np.zeros(self._count, np.int64), True)
        return _masked(self._columns[column])

    def floats(self, column: str) -> npt.NDArray[np.float64]:
        """Numbers; NaN for NULL."""
        if column not in self:
            return np.full(self._count, np.nan)
        return floats(self._columns[column])

    def texts(self, column: str, rows: Int64s | slice = slice(None)) -> list[str]:
        """Texts, those of some rows if these are named; '' for NULL."""
        if column not in self:
            return [""] * len(np.empty(self._count)[rows])
        return texts(self._columns[column][rows])

    def null(self, column: str) -> npt.NDArray[np.bool_]:
        """Mask of rows in which a column has no value."""
        if column not in self:
            return np.ones(self._count, np.bool_)
        return no_value(self._columns[column])


def _masked(column: Column) -> Any:
    if column.dtype == np.int64:
        return column
    values = integers(column, np.iinfo(np.int64).min)
    return np.ma.MaskedArray(values, values == np.iinfo(np.int64).min)


class InDatabase:
    """The tables of a database."""

    def __init__(self, file: SourceFile) -> None:
        self._database = Database(file.read(), file.label)

    @property
    def names(self) -> list[str]:
        """Names of the tables."""
        return list(self._database.tables)

    def columns(self, table: str) -> list[str]:
        """Names of the columns of a table."""
        if table not in self._database:
            return []
        return list(self._database.tables[table].columns)

    def count(self, table: str) -> int:
        """Number of rows; 0 for a missing table."""
        return self._database.count(table)

    def read(self, table: str, *columns: str) -> dict[str, Column]:
        """Those of some columns that it has."""
        return self._database.read(table, *columns)


class InFolder:
    """The tables of a folder, each in a file.

    Raises
    ------
    ReadError
        pyarrow is not installed.
    """

    def __init__(self, files: Sequence[SourceFile]) -> None:
        try:
            import pyarrow as pa
            import pyarrow.parquet as pq
        except ImportError:
            raise ReadError(EXTRA, path=files[0].label) from None
        self._arrow, self._parquet = pa, pq
        self._files = {file.name.rpartition(".")[0]: file for file in files}
        self._open: dict[str, Any] = {}

    @property
    def names(self) -> list[str]:
        """Names of the tables."""
        return list(self._files)

    def columns(self, table: str) -> list[str]:
        """Names of the columns of a table."""
        if table not in self._files:
            return []
        return list(self._parquet_file(table).schema_arrow.names)

    def count(self, table: str) -> int:
        """Number of rows; 0 for a missing table."""
        if table not in self._files:
            return 0
        return int(self._parquet_file(table).metadata.num_rows)

    def read(self, table: str, *columns: str) -> dict[str, Column]:
        """Those of some columns that it has."""
        columns_here = self.columns(table)
        if not columns_here:
            return {}
        names = [name for name in columns or columns_here if name in columns_here]
        try:
            arrow_table = self._parquet_file(table).read(columns=names)
            return {name: _column(arrow_table.column(name)) for name in names}
        except (self._arrow.ArrowException, OSError, ValueError, MemoryError) as error:
            raise self._damaged(table, error) from None

    def _parquet_file(self, table: str) -> Any:
        if table not in self._open:
            data = self._files[table].read().data
            try:
                self._open[table] = self._parquet.ParquetFile(
                    self._arrow.BufferReader(self._arrow.py_buffer(data))
                )
            except (self._arrow.ArrowException, OSError, ValueError, MemoryError) as error:
                raise self._damaged(table, error) from None
        return self._open[table]

    def _damaged(self, table: str, error: BaseException) -> ReadError:
        first = str(error).partition("\n")[0].rstrip(".")
        return ReadError(
            f"this Parquet file is damaged: {first}. Copy or export it again.",
            path=self._files[table].label,
        )


def _column(array: Any) -> Column:
    """A column of Arrow as one of a database."""
    import pyarrow as pa

    kind = array.type
    if pa.types.is_boolean(kind):
        array, kind = array.cast(pa.int8()), pa.int8()
    if pa.types.is_floating(kind):
        return np.asarray(array.to_numpy(), np.float64)
    if not pa.types.is_integer(kind):
        return np.array([*array.to_pylist(), None], object)[:-1]
    numbers = np.asarray(array.fill_null(0))
    # Ids of threads are unsigned there; none has its highest bit set.
    values = numbers.view(np.int64) if numbers.dtype == np.uint64 else numbers.astype(np.int64)
    if array.null_count:
        return np.ma.MaskedArray(values, np.asarray(array.is_null()))
    return values
