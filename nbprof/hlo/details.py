"""What only some instructions of a compiled program state: dimensions of a dot or convolution, its
window, what a custom call is set to.

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
_SLICE_SIZES, _DOT, _FFT_LENGTH, _BACKEND, _FEATURE_GROUPS, _BATCH_GROUPS, _DIRECTION = (
    20,
    30,
    32,
    43,
    50,
    58,
    63,
)
_WANTED = frozenset((
    _PARAMETER, _TUPLE_INDEX, _DIMENSIONS, _WINDOW, _CONVOLUTION, _SLICES, _SLICE_SIZES, _DOT, _FFT_LENGTH, _BACKEND, _FEATURE_GROUPS,
    _BATCH_GROUPS, _DIRECTION,
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
    """Which dimensions of a dot are summed over, and which are only gone through together."""

    lhs_contracting: tuple[int, ...] = ()
    rhs_contracting: tuple[int, ...] = ()
    lhs_batch: tuple[int, ...] = ()
    rhs_batch: tuple[int, ...] = ()


@dataclass(frozen=True)
class ConvolutionDimensions:
    """Which dimension of input, kernel and output of a convolution is what."""

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
        return f"{data}_{kernel}->{self._label(self.output_batch, self.output_feature, self.output_spatial, 'bf')}"

    @staticmethod
    def _label(first: int, second: int, spatial: tuple[int, ...], letters: str) -> str:
        places = {
            first: letters[0],
            second: letters[1],
            **{dimension: str(number) for number, dimension in enumerate(spatial)},
        }
        return "".join(places[dimension] for dimension in sorted(places))


@dataclass(frozen=True)
class Details:
    """What an instruction states beside its operands and its shape; empty where it states
    nothing.
    """

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
    """Which parameter of its computation the instruction at a place is."""
    return program.number_of(index, _PARAMETER)


def read(program: Program, index: int) -> Details:
    """What the instruction at a place of the file states.

    Raises
    ------
    ReadError
        It is damaged.
    """
    data = program.buffer.data
    stated_values: dict[str, object] = {}
    many: dict[str, list[int]] = {}
    slices: list[tuple[int, int, int]] = []
    for number, kind, value, end in program.fields(index):
        if number not in _WANTED:
            continue
        if number in _LISTS:
            many.setdefault(_LISTS[number], []).extend(numbers(data, kind, value, end))
        elif number in _NUMBERS and kind == VARINT:
            stated_values[_NUMBERS[number]] = value
        elif kind != LENGTH:
            continue
        elif number == _WINDOW:
            stated_values["window"] = tuple(
                _window(data, start, stop)
                for key, form, start, stop in wire.fields(data, value, end, _DEPTH)
                if (key, form) == (1, LENGTH)
            )
        elif number == _CONVOLUTION:
            stated_values["convolution"] = _convolution(data, value, end)
        elif number == _DOT:
            stated_values["dot"] = DotDimensions(
                *(tuple(part) for part in _parts(data, value, end, (1, 2, 3, 4)))
            )
        elif number == _SLICES:
            bounds = {
                key: wire.signed(start)
                for key, form, start, _ in wire.fields(data, value, end, _DEPTH)
                if form == VARINT
            }
            slices.append((bounds.get(1, 0), bounds.get(2, 0), bounds.get(3, 1)))
        elif number == _BACKEND:
            stated_values["backend"] = bytes(data[value:end])
        elif number == _DIRECTION:
            stated_values["direction"] = bytes(data[value:end]).decode("utf-8", "replace")
    for name, values in many.items():
        stated_values[name] = tuple(values)
    # Older programs leave the groups at 0.
    for name in ("feature_groups", "batch_groups"):
        stated_values[name] = max(int(str(stated_values.get(name, 1))), 1)
    return Details(**stated_values, slices=tuple(slices))  # type: ignore[arg-type]


_LISTS = {_DIMENSIONS: "dimensions", _SLICE_SIZES: "slice_sizes", _FFT_LENGTH: "fft_length"}
_NUMBERS = {
    _PARAMETER: "parameter",
    _TUPLE_INDEX: "tuple_index",
    _FEATURE_GROUPS: "feature_groups",
    _BATCH_GROUPS: "batch_groups",
}


def _parts(data: Data, start: int, end: int, fields: tuple[int, ...]) -> list[list[int]]:
    result: dict[int, list[int]] = {number: [] for number in fields}
    for key, form, at, stop in wire.fields(data, start, end, _DEPTH):
        if key in result:
            result[key] += numbers(data, form, at, stop)
    return [result[number] for number in fields]


def _window(data: Data, start: int, end: int) -> WindowDimension:
    values = {
        key: wire.signed(start)
        for key, form, start, _ in wire.fields(data, start, end, _DEPTH + 1)
        if form == VARINT
    }
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
    part = dict(zip(range(3, 13), _parts(data, start, end, tuple(range(3, 13))), strict=True))

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
