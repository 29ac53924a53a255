"""Details of some instructions of compiled programs: dimensions of a dot or convolution, its
window, settings of a custom call.

Source of the message numbers: `hlo.proto` and `xla_data.proto` of https://github.com/openxla/xla
(HloInstructionProto, DotDimensionNumbers, ConvolutionDimensionNumbers, Window).
"""

from __future__ import annotations

from dataclasses import dataclass, field

from nbprof.core import wire
from nbprof.core.wire import LENGTH, VARINT, Data
from nbprof.hlo.hlo import Program
from nbprof.hlo.shapes import numbers

_PARAMETER, _TUPLE_INDEX, _DIMENSIONS, _WINDOW, _CONVOLUTION, _SLICES = 9, 13, 14, 15, 16, 17
_SLICE_SIZES, _DOT, _FFT_LENGTH, _BACKEND, _FEATURE_GROUPS, _BATCH_GROUPS = 20, 30, 32, 43, 50, 58
_DIRECTION = 63
_FIELDS = frozenset((
    _PARAMETER, _TUPLE_INDEX, _DIMENSIONS, _WINDOW, _CONVOLUTION, _SLICES, _SLICE_SIZES, _DOT,
    _FFT_LENGTH, _BACKEND, _FEATURE_GROUPS, _BATCH_GROUPS, _DIRECTION,
))  # fmt: skip
_DEPTH = 4


@dataclass(frozen=True)
class WindowDimension:
    """One dimension of a window, as of a convolution or a pooling."""

    size: int = 1
    stride: int = 1
    low: int = 0
    high: int = 0
    window_dilation: int = 1
    base_dilation: int = 1
    reversal: bool = False


@dataclass(frozen=True)
class DotDimensions:
    """Dimensions of a dot that are summed over, and batch dimensions."""

    lhs_contracting: tuple[int, ...] = ()
    rhs_contracting: tuple[int, ...] = ()
    lhs_batch: tuple[int, ...] = ()
    rhs_batch: tuple[int, ...] = ()


@dataclass(frozen=True)
class ConvolutionDimensions:
    """The roles of the dimensions of input, kernel and output of a convolution."""

    input_batch: int = 0
    input_feature: int = 0
    input_spatial: tuple[int, ...] = ()
    kernel_input: int = 0
    kernel_output: int = 0
    kernel_spatial: tuple[int, ...] = ()
    output_batch: int = 0
    output_feature: int = 0
    output_spatial: tuple[int, ...] = ()

    def __str__(self) -> str:
        """As XLA writes it: `b01f_01io->b01f`."""
        data = self._label(self.input_batch, self.input_feature, self.input_spatial, "bf")
        kernel = self._label(self.kernel_input, self.kernel_output, self.kernel_spatial, "io")
        output = self._label(self.output_batch, self.output_feature, self.output_spatial, "bf")
        return f"{data}_{kernel}->{output}"

    @staticmethod
    def _label(first: int, second: int, spatial: tuple[int, ...], letters: str) -> str:
        letter_of = {first: letters[0], second: letters[1]}
        for number, dimension in enumerate(spatial):
            letter_of[dimension] = str(number)
        return "".join(map(letter_of.__getitem__, sorted(letter_of)))


@dataclass(frozen=True)
class Details:
    """Properties of an instruction other than its operands and shape; empty if not stated."""

    parameter: int = 0
    tuple_index: int = 0
    dimensions: tuple[int, ...] = ()
    window: tuple[WindowDimension, ...] = ()
    convolution: ConvolutionDimensions = field(default_factory=ConvolutionDimensions)
    slices: tuple[tuple[int, int, int], ...] = ()
    slice_sizes: tuple[int, ...] = ()
    dot: DotDimensions = field(default_factory=DotDimensions)
    fft_length: tuple[int, ...] = ()
    backend: bytes = b""
    feature_groups: int = 1
    batch_groups: int = 1
    direction: str = ""


def parameter(program: Program, index: int) -> int:
    """The number of a parameter of a computation."""
    return program.number_of(index, _PARAMETER)


def read(program: Program, index: int) -> Details:
    """The details of an instruction.

    Raises
    ------
    ReadError
        It is damaged.
    """
    data = program.buffer.data
    values: dict[str, object] = {}
    many: dict[str, list[int]] = {}
    slices: list[tuple[int, int, int]] = []
    for number, kind, value, end in program.fields(index):
        if number not in _FIELDS:
            continue
        if number in _LISTS:
            many.setdefault(_LISTS[number], []).extend(numbers(data, kind, value, end))
        elif number in _NUMBERS and kind == VARINT:
            values[_NUMBERS[number]] = value
        elif kind != LENGTH:
            continue
        elif number == _WINDOW:
            values["window"] = _window(data, value, end)
        elif number == _CONVOLUTION:
            values["convolution"] = _convolution(data, value, end)
        elif number == _DOT:
            lists = _number_lists(data, value, end, (1, 2, 3, 4))
            values["dot"] = DotDimensions(*map(tuple, lists))
        elif number == _SLICES:
            bounds = _single_numbers(data, value, end, _DEPTH)
            slices.append((bounds.get(1, 0), bounds.get(2, 0), bounds.get(3, 1)))
        elif number == _BACKEND:
            values["backend"] = bytes(data[value:end])
        elif number == _DIRECTION:
            values["direction"] = bytes(data[value:end]).decode("utf-8", "replace")
    for name, items in many.items():
        values[name] = tuple(items)
    # In older programs the numbers of groups are 0.
    for name in ("feature_groups", "batch_groups"):
        values[name] = max(int(str(values.get(name, 1))), 1)
    return Details(**values, slices=tuple(slices))  # type: ignore[arg-type]


_LISTS = {_DIMENSIONS: "dimensions", _SLICE_SIZES: "slice_sizes", _FFT_LENGTH: "fft_length"}
_NUMBERS = {
    _PARAMETER: "parameter",
    _TUPLE_INDEX: "tuple_index",
    _FEATURE_GROUPS: "feature_groups",
    _BATCH_GROUPS: "batch_groups",
}


def _number_lists(data: Data, start: int, end: int, fields: tuple[int, ...]) -> list[list[int]]:
    """The numbers of some repeated fields of a message."""
    lists: dict[int, list[int]] = {field: [] for field in fields}
    for key, kind, value, stop in wire.fields(data, start, end, _DEPTH):
        if key in lists:
            lists[key] += numbers(data, kind, value, stop)
    return list(lists.values())


def _single_numbers(data: Data, start: int, end: int, depth: int) -> dict[int, int]:
    """The number of each varint field of a message."""
    numbers_of_fields: dict[int, int] = {}
    for key, kind, value, _ in wire.fields(data, start, end, depth):
        if kind == VARINT:
            numbers_of_fields[key] = wire.signed(value)
    return numbers_of_fields


def _window(data: Data, start: int, end: int) -> tuple[WindowDimension, ...]:
    dimensions = []
    for key, kind, value, stop in wire.fields(data, start, end, _DEPTH):
        if (key, kind) == (1, LENGTH):
            dimensions.append(_window_dimension(data, value, stop))
    return tuple(dimensions)


def _window_dimension(data: Data, start: int, end: int) -> WindowDimension:
    values = _single_numbers(data, start, end, _DEPTH + 1)
    return WindowDimension(
        values.get(1, 0),
        values.get(2, 1) or 1,
        values.get(3, 0),
        values.get(4, 0),
        values.get(5, 1) or 1,
        values.get(6, 1) or 1,
        bool(values.get(7, 0)),
    )


def _convolution(data: Data, start: int, end: int) -> ConvolutionDimensions:
    fields = tuple(range(3, 13))
    part = dict(zip(fields, _number_lists(data, start, end, fields), strict=True))

    def last(number: int) -> int:
        return part[number][-1] if part[number] else 0

    return ConvolutionDimensions(
        last(7),
        last(8),
        tuple(part[11]),
        last(3),
        last(4),
        tuple(part[6]),
        last(9),
        last(10),
        tuple(part[12]),
    )
