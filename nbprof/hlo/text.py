"""Ops of compiled programs as XLA writes them, without metadata and backend settings:
`%add.1 = f32[8]{0} add(f32[8]{0} %a, f32[8]{0} %b)`.

In profiles of TPUs this text is the name of an event; for GPUs it is written here from the program,
without shardings and without the values of constants that are not scalars.

Sources: `hlo.proto` and `xla_data.proto` of https://github.com/openxla/xla for the message numbers,
and the text that XLA's parser in jaxlib returns (`tests/formats/test_hlo_text.py` compares every op
with it).
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterable
from functools import cached_property

from nbprof.core import wire
from nbprof.core.wire import FIXED32, LENGTH, VARINT
from nbprof.hlo import details as hlo_details
from nbprof.hlo import shapes as hlo_shapes
from nbprof.hlo.details import Details, WindowDimension
from nbprof.hlo.hlo import Instruction, Program
from nbprof.hlo.shapes import numbers, with_indices

_DEPTH = 4
"""Number of messages around a message inside an instruction."""
_CALLED, _DIMENSIONS = 38, 14
_LITERAL, _EXPONENT, _MANTISSA, _PADDING, _DISTRIBUTION, _EPSILON = 8, 18, 19, 21, 23, 24
_FEATURE, _CHANNEL = 25, 26
_OUTFEED, _FFT_TYPE, _GATHER, _GATHER_SIZES, _PREDECESSORS, _HOST_TRANSFER = 29, 31, 33, 34, 37, 47
_SCATTER, _GROUPS = 48, 49
_PRECISION, _PAIRS, _CONSTRAINED, _LAYOUTS, _TRIANGULAR, _STABLE = 51, 52, 56, 57, 59, 60
_CHOLESKY, _SIDE_EFFECT = 62, 65
_DELTA, _SORTED, _FRONTEND, _UNIQUE, _ALGORITHM, _GLOBAL_IDS = 66, 67, 68, 69, 70, 71
_COMPARISON, _ALIASING = 72, 74
_API, _PREFETCH, _TOP, _LARGEST, _DEVICES, _GRID = 77, 80, 81, 85, 87, 92
_APIS = ("UNSPECIFIED", "ORIGINAL", "STATUS_RETURNING", "STATUS_RETURNING_UNIFIED", "TYPED_FFI")
_FFTS = ("FFT", "IFFT", "RFFT", "IRFFT")
_DISTRIBUTIONS = ("rng_invalid", "rng_uniform", "rng_normal")
_ALGORITHMS = ("rng_default", "rng_three_fry", "rng_philox")
_PRECISIONS = ("default", "high", "highest", "packed_nibble")
_TRANSPOSES = ("TRANSPOSE_INVALID", "NO_TRANSPOSE", "TRANSPOSE", "ADJOINT")
_APPLIED = frozenset((
    "call", "map", "reduce-window", "reduce", "all-reduce", "all-reduce-start", "reduce-scatter",
    "scatter", "topk", "sort",
))  # fmt: skip
_LISTED = frozenset((
    "broadcast", "reduce", "transpose", "reverse", "concatenate", "map", "sort",
    "get-dimension-size", "set-dimension-size",
))  # fmt: skip
_ALONG = frozenset(("all-gather", "all-gather-start", "all-to-all", "reduce-scatter"))
_COLLECTIVES = _ALONG | {
    "all-reduce",
    "all-reduce-start",
    "ragged-all-to-all",
    "collective-broadcast",
}
_LITERALS: dict[str, tuple[int, str]] = {
    "s32": (4, ""), "s64": (5, ""), "u32": (6, ""), "u64": (7, ""), "f32": (8, "f"),
    "f64": (9, "d"), "pred": (2, ""), "s8": (15, "b"), "u8": (3, "B"), "s16": (17, "h"),
    "u16": (16, "H"), "f16": (10, "e"), "bf16": (13, "bf"),
}  # fmt: skip
"""By element type: the field of LiteralProto with its values, and their `struct` format.

They are varints if the format is empty.
"""


def expression(program: Program, index: int) -> str:
    """An instruction as XLA writes it.

    Raises
    ------
    ReadError
        It is damaged.
    """
    return _Writer(program, index).text()


def _braced(values: Iterable[object]) -> str:
    return "{" + ",".join(map(str, values)) + "}"


def _name_of(names: tuple[str, ...], number: int) -> str:
    return names[number] if 0 <= number < len(names) else str(number)


class _Fields:
    """The fields of an instruction by number, except name, opcode, shape and ident.

    Parameters
    ----------
    program : Program
    index : int
        The index of the instruction in the program.

    Raises
    ------
    ReadError
        It is damaged.
    """

    def __init__(self, program: Program, index: int) -> None:
        self.program = program
        self.index = index
        self.opcode = program.opcodes[index]
        self.fields: dict[int, list[tuple[int, int, int]]] = {}
        for number, kind, value, end in program.fields(index):
            self.fields.setdefault(number, []).append((kind, value, end))

    @cached_property
    def instruction(self) -> Instruction:
        """The instruction, decoded."""
        return self.program.instruction(self.index)

    @cached_property
    def details(self) -> Details:
        """Dimensions, window and settings of the instruction."""
        return hlo_details.read(self.program, self.index)

    def number(self, field: int) -> int:
        """A number or flag; 0 if it is not stated."""
        number = 0
        for kind, value, _ in self.fields.get(field, []):
            if kind == VARINT:
                number = wire.signed(value)
        return number

    def numbers(self, field: int) -> list[int]:
        """The numbers of a repeated field."""
        result: list[int] = []
        for kind, value, end in self.fields.get(field, []):
            result += numbers(self.program.buffer.data, kind, value, end)
        return result

    def messages(self, field: int) -> list[tuple[int, int]]:
        """The spans of the messages of a field."""
        return _message_spans(self.fields.get(field, []))

    def parts(self, span: tuple[int, int]) -> dict[int, list[tuple[int, int, int]]]:
        """The fields of a message inside the instruction."""
        fields: dict[int, list[tuple[int, int, int]]] = {}
        for number, kind, value, end in wire.fields(self.program.buffer.data, *span, _DEPTH):
            fields.setdefault(number, []).append((kind, value, end))
        return fields

    def values(self, span: tuple[int, int], *fields: int) -> list[list[int]]:
        """The numbers of some fields of a message inside the instruction."""
        parts = self.parts(span)
        data = self.program.buffer.data
        result = []
        for field in fields:
            values: list[int] = []
            for kind, value, end in parts.get(field, []):
                values += numbers(data, kind, value, end)
            result.append(values)
        return result

    def text_at(self, span: tuple[int, int]) -> str:
        """The text of a span."""
        return bytes(self.program.buffer.data[span[0] : span[1]]).decode("utf-8", "replace")

    def shapes(self, field: int) -> list[str]:
        """The shapes of a field, as text."""
        shapes = []
        for start, end in self.messages(field):
            shapes.append(str(hlo_shapes.read(self.program.buffer.data, start, end, _DEPTH)))
        return shapes

    def float_at(self, offset: int, form: str) -> float:
        """The number at an offset, in a format of `struct`."""
        content = bytes(self.program.buffer.data[offset : offset + struct.calcsize(form)])
        return float(struct.unpack(f"<{form}", content)[0])


class _Writer(_Fields):
    def text(self) -> str:
        opcode = self.opcode
        attributes = self.attributes()
        if opcode in ("async-start", "async-update", "async-done"):
            wrapped = self._wrapped()
            if wrapped is not None:
                # Written as the op that it runs.
                opcode = wrapped.opcode + opcode[len("async") :]
                attributes = []
                if opcode.endswith("-start"):
                    attributes = wrapped.attributes()
        arguments = self._operands()
        if self.opcode == "parameter":
            arguments = str(hlo_details.parameter(self.program, self.index))
        elif self.opcode == "constant":
            arguments = self._literal()
        name, shape = self.program.names[self.index], self.program.shape(self.index).text
        return ", ".join([f"%{name} = {shape} {opcode}({arguments})", *attributes])

    def _wrapped(self) -> _Writer | None:
        called = self.numbers(_CALLED)
        if not called:
            return None
        computation = self.program.computation(called[0])
        if computation is None:
            return None
        root = self.program.index_of_ident(computation.root)
        return None if root is None else _Writer(self.program, root)

    def _operands(self) -> str:
        return ", ".join(with_indices(map(self._operand, self.program.operands(self.index))))

    def _operand(self, index: int) -> str:
        if index < 0:
            return "%?"
        return f"{self.program.shape(index).text} %{self.program.names[index]}"

    def attributes(self) -> list[str]:
        """The text after the operands."""
        attributes: list[str] = []
        special = _SPECIAL.get(self.opcode)
        if self.opcode in _LISTED:
            attributes.append(f"dimensions={_braced(self.numbers(_DIMENSIONS))}")
        if self.opcode in _COLLECTIVES:
            attributes += self._collective()
        if special is not None:
            attributes += special(self)
        attributes += self._called()
        # Rarely present.
        if _FRONTEND in self.fields:
            attributes += self._frontend_attributes()
        if _PREDECESSORS in self.fields:
            attributes += self._predecessors()
        return attributes

    def _frontend_attributes(self) -> list[str]:
        attributes = {}
        for span in self.messages(_FRONTEND):
            for entry in self.parts(span).get(1, []):
                pair = self.parts(entry[1:])
                attributes[self._first_text(pair, 1)] = self._first_text(pair, 2)
        if not attributes:
            return []
        texts = []
        for key, value in sorted(attributes.items()):
            # JSON is written without quotes.
            texts.append(f"{key}={value}" if value[:1] == "{" else f'{key}="{value}"')
        return [f"frontend_attributes={_braced(texts)}"]

    def _first_text(self, fields: dict[int, list[tuple[int, int, int]]], number: int) -> str:
        return self.text_at(fields[number][0][1:]) if number in fields else ""

    def _predecessors(self) -> list[str]:
        indices = map(self.program.index_of_ident, self.numbers(_PREDECESSORS))
        names = [f"%{self.program.names[index]}" for index in indices if index is not None]
        if not names:
            return []
        return [f"control-predecessors={{{', '.join(names)}}}"]

    def _called(self) -> list[str]:
        opcode = self.opcode
        if _CALLED not in self.fields or opcode.startswith("async-"):
            return []
        names = []
        for ident in self.numbers(_CALLED):
            computation = self.program.computation(ident)
            names.append("%?" if computation is None else f"%{computation.name}")
        if not names:
            return []
        if opcode == "while" and len(names) > 1:
            return [f"condition={names[1]}", f"body={names[0]}"]
        if opcode == "select-and-scatter" and len(names) > 1:
            return [f"select={names[0]}", f"scatter={names[1]}"]
        if opcode == "conditional":
            condition = next(iter(self.program.operands(self.index)), -1)
            has_flag = condition >= 0 and self.program.shape(condition).element == "pred"
            if has_flag and len(names) == 2:
                return [f"true_computation={names[0]}", f"false_computation={names[1]}"]
            return ["branch_computations={" + ", ".join(names) + "}"]
        if opcode in _APPLIED:
            return [f"to_apply={names[0]}"]
        if opcode == "custom-call":
            return ["called_computations={" + ", ".join(names) + "}"]
        return [f"calls={', '.join(names)}"]

    def _channel(self) -> list[str]:
        channel = self.number(_CHANNEL)
        return [f"channel_id={channel}"] if channel > 0 else []

    def _collective(self) -> list[str]:
        attributes = [*self._channel(), f"replica_groups={self._groups()}"]
        attributes += _flags(constrain_layout=self.number(_CONSTRAINED))
        if self.opcode in _ALONG and self.details.dimensions:
            attributes.append(f"dimensions={_braced(self.details.dimensions)}")
        return attributes + _flags(use_global_device_ids=self.number(_GLOBAL_IDS))

    def _groups(self) -> str:
        """The groups of devices: a list, or a partition of a grid.

        Newer programs state either in another field.
        """
        groups, grids = self.messages(_GROUPS), self.messages(_GRID)
        for span in self.messages(_DEVICES):
            fields = self.parts(span)
            grids += _message_spans(fields.get(2, []))
            groups = _message_spans(fields.get(1, [])) or groups
        if grids:
            count, size, grid, order = self.values(grids[0], 1, 2, 3, 4)
            text = f"[{','.join(map(str, count + size))}]<=[{','.join(map(str, grid))}]"
            if order == list(range(len(order))):
                return text
            return f"{text}T({','.join(map(str, order))})"
        return _braced(_braced(self.values(span, 1)[0]) for span in groups)

    def precision(self) -> list[str]:
        for span in self.messages(_PRECISION):
            values = self.values(span, 1)[0]
            if any(values):
                return [f"operand_precision={_braced(_name_of(_PRECISIONS, n) for n in values)}"]
        return []

    def window(self) -> list[str]:
        window = self.details.window
        if not window:
            return []
        return [f"window={{{_window(window)}}}"]

    def convolution(self) -> list[str]:
        attributes = self.window()
        if self.fields.get(16):
            attributes.append(f"dim_labels={self.details.convolution}")
        if self.details.feature_groups != 1:
            attributes.append(f"feature_group_count={self.details.feature_groups}")
        if self.details.batch_groups != 1:
            attributes.append(f"batch_group_count={self.details.batch_groups}")
        return [*attributes, *self.precision()]

    def custom_call(self) -> list[str]:
        attributes = [
            *self.convolution(),
            f'custom_call_target="{_escaped(self.instruction.target)}"',
        ]
        if self.number(_CONSTRAINED):
            shapes = ", ".join(self.shapes(_LAYOUTS))
            attributes.append(f"operand_layout_constraints={{{shapes}}}")
        attributes += _flags(custom_call_has_side_effect=self.number(_SIDE_EFFECT))
        attributes += self.aliasing()
        api = self.number(_API)
        if api > 1:
            attributes.append(f"api_version=API_VERSION_{_name_of(_APIS, api)}")
        return attributes

    def aliasing(self) -> list[str]:
        """The operands whose memory the outputs reuse."""
        pairs = []
        for span in self.messages(_ALIASING):
            output, operands, operand_index = self.values(span, 1, 2, 3)
            output_text = ", ".join(map(str, output))
            operand_text = ", ".join(map(str, operand_index))
            pairs.append(f"{{{output_text}}}: ({_first(operands)}, {{{operand_text}}})")
        if not pairs:
            return []
        return [f"output_to_operand_aliasing={{{', '.join(pairs)}}}"]

    def numbered(self, field: int, *names: tuple[int, str, bool]) -> list[str]:
        """Lists of dimensions in a message; each name is `(field, name, also if empty)`."""
        span = _first_span(self.messages(field))
        attributes = []
        for number, name, always in names:
            (dimensions,) = self.values(span, number)
            if dimensions or always:
                attributes.append(f"{name}={_braced(dimensions)}")
        return attributes

    def indexed(self) -> list[str]:
        """The attributes that gather and scatter share."""
        return _flags(indices_are_sorted=self.number(_SORTED), unique_indices=self.number(_UNIQUE))

    def index_dimension(self, field: int) -> str:
        (dimensions,) = self.values(_first_span(self.messages(field)), 4)
        return f"index_vector_dim={_first(dimensions)}"

    def epsilon(self) -> list[str]:
        epsilon = 0.0
        for kind, offset, _ in self.fields.get(_EPSILON, []):
            if kind == FIXED32:
                epsilon = self.float_at(offset, "f")
        return [f"epsilon={_short_number(epsilon)}"]

    def _literal(self) -> str:
        shape = self.program.shape(self.index)
        spans = self.messages(_LITERAL)
        if shape.dimensions or shape.element not in _LITERALS or not spans:
            return "{...}"
        field, form = _LITERALS[shape.element]
        for kind, value, end in self.parts(spans[0]).get(field, []):
            if form:
                text = self._packed_number(form, value, end)
            else:
                values = numbers(self.program.buffer.data, kind, value, end)
                text = _integer(values, shape.element)
            if text:
                return text
        return "{...}"

    def _packed_number(self, form: str, start: int, end: int) -> str:
        """A number in a format of `struct`, or "bf" for bfloat16; '' if there are too few bytes."""
        if form == "bf":
            if end - start < 2:
                return ""
            content = bytes(2) + bytes(self.program.buffer.data[start : start + 2])
            return f"{struct.unpack('<f', content)[0]:.4g}"
        if end - start < struct.calcsize(form):
            return ""
        number = self.float_at(start, form)
        if form == "e":
            return f"{number:.4g}"
        if form == "d":
            return _short_number(number, form)
        return _short_number(number)


def _integer(values: list[int], element: str) -> str:
    """The last of the numbers that state a value; '' for none."""
    if not values:
        return ""
    value = values[-1]
    if element == "pred":
        return _truth(value)
    if element.startswith("u"):
        value %= 1 << 64
    return str(value)


def _truth(value: int) -> str:
    return "true" if value else "false"


def _flags(**flags: int) -> list[str]:
    """The flags that are set, as `name=true`."""
    return [f"{name}=true" for name, value in flags.items() if value]


def _first(values: list[int]) -> int:
    return values[0] if values else 0


def _first_span(spans: list[tuple[int, int]]) -> tuple[int, int]:
    """The first of the messages of a field; an empty message for none."""
    return spans[0] if spans else (0, 0)


def _message_spans(entries: list[tuple[int, int, int]]) -> list[tuple[int, int]]:
    return [(start, end) for kind, start, end in entries if kind == LENGTH]


_WINDOW: dict[str, tuple[str, Callable[[WindowDimension], object]]] = {
    "stride": ("1", lambda dimension: dimension.stride),
    "pad": ("0_0", lambda dimension: f"{dimension.low}_{dimension.high}"),
    "lhs_dilate": ("1", lambda dimension: dimension.base_dilation),
    "rhs_dilate": ("1", lambda dimension: dimension.window_dilation),
    "rhs_reversal": ("0", lambda dimension: int(dimension.reversal)),
}
"""Settings of a window: the default, which is not written, and the value of a dimension."""


def _window(window: tuple[WindowDimension, ...]) -> str:
    attributes = ["size=" + "x".join(str(dimension.size) for dimension in window)]
    for name, (default, setting) in _WINDOW.items():
        values = [str(setting(dimension)) for dimension in window]
        if set(values) != {default}:
            attributes.append(f"{name}={'x'.join(values)}")
    return " ".join(attributes)


def _escaped(text: str) -> str:
    return text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")


def _slices(op: _Writer) -> list[str]:
    slices = op.details.slices
    strided = any(stride != 1 for _, _, stride in slices)
    texts = []
    for start, stop, stride in slices:
        step = f":{stride}" if strided else ""
        texts.append(f"[{start}:{stop}{step}]")
    return [f"slice={{{', '.join(texts)}}}"]


def _padding(op: _Writer) -> list[str]:
    sizes = []
    for span in op.messages(_PADDING):
        for _, start, end in op.parts(span).get(1, []):
            sizes.append(_last_values(op.values((start, end), 1, 2, 3)))
    if not sizes:
        return []
    dilated = any(interior for _, _, interior in sizes)
    texts = []
    for low, high, interior in sizes:
        between = f"_{interior}" if dilated else ""
        texts.append(f"{low}_{high}{between}")
    return ["padding=" + "x".join(texts)]


def _last_values(lists: list[list[int]]) -> list[int]:
    """The last value of each list, 0 for empty ones."""
    return [[0, *values][-1] for values in lists]


def _dot(op: _Writer) -> list[str]:
    dims = op.details.dot
    attributes = []
    for name in ("lhs_batch", "lhs_contracting", "rhs_batch", "rhs_contracting"):
        dimensions = getattr(dims, name)
        if dimensions:
            attributes.append(f"{name}_dims={_braced(dimensions)}")
    return attributes + op.precision()


def _fusion(op: _Writer) -> list[str]:
    return [f"kind={op.program.fusion_kinds[op.index]}", *op.aliasing()]


def _gather(op: _Writer) -> list[str]:
    dims = op.numbered(
        _GATHER,
        (1, "offset_dims", True),
        (2, "collapsed_slice_dims", True),
        (3, "start_index_map", True),
        (5, "operand_batching_dims", False),
        (6, "start_indices_batching_dims", False),
    )
    return [
        *dims,
        op.index_dimension(_GATHER),
        f"slice_sizes={_braced(op.numbers(_GATHER_SIZES))}",
        *op.indexed(),
    ]


def _scatter(op: _Writer) -> list[str]:
    dims = op.numbered(
        _SCATTER,
        (1, "update_window_dims", True),
        (2, "inserted_window_dims", True),
        (3, "scatter_dims_to_operand_dims", True),
        (5, "input_batching_dims", False),
        (6, "scatter_indices_batching_dims", False),
    )
    return [*dims, op.index_dimension(_SCATTER), *op.indexed()]


def _compare(op: _Writer) -> list[str]:
    kind = "".join(map(op.text_at, op.messages(_COMPARISON)))
    attributes = [f"direction={op.details.direction}"]
    if kind == "TOTALORDER":
        attributes.append(f"type={kind}")
    return attributes


def _pairs(op: _Writer) -> list[str]:
    pairs = []
    for span in op.messages(_PAIRS):
        pairs.append(_braced(_last_values(op.values(span, 1, 2))))
    return [*op._channel(), f"source_target_pairs={_braced(pairs)}"]


def _host(op: _Writer) -> list[str]:
    return op._channel() + _flags(is_host_transfer=op.number(_HOST_TRANSFER))


def _normalized(op: _Writer) -> list[str]:
    return [*op.epsilon(), f"feature_index={op.number(_FEATURE)}"]


def _outfeed(op: _Writer) -> list[str]:
    return [f"outfeed_shape={shape}" for shape in op.shapes(_OUTFEED)]


def _triangular(op: _Writer) -> list[str]:
    result = []
    for span in op.messages(_TRIANGULAR):
        left, lower, unit, transpose = _last_values(op.values(span, 1, 2, 3, 4))
        result += _flags(left_side=left, lower=lower, unit_diagonal=unit)
        if transpose:
            result.append(f"transpose_a={_name_of(_TRANSPOSES, transpose)}")
    return result


def _cholesky(op: _Writer) -> list[str]:
    result = []
    for span in op.messages(_CHOLESKY):
        result += _flags(lower=any(op.values(span, 1)[0]))
    return result


def _top(op: _Writer) -> list[str]:
    largest, stable = _truth(op.number(_LARGEST)), _truth(op.number(_STABLE))
    return [f"k={op.number(_TOP)}", f"largest={largest}", f"is_stable={stable}"]


def _copy_start(op: _Writer) -> list[str]:
    if not op.fields.get(_PREFETCH):
        return []
    return [f"cross_program_prefetch_index={op.number(_PREFETCH)}"]


_SPECIAL: dict[str, Callable[[_Writer], list[str]]] = {
    "slice": _slices,
    "dynamic-slice": lambda op: [f"dynamic_slice_sizes={_braced(op.details.slice_sizes)}"],
    "pad": _padding,
    "iota": lambda op: [f"iota_dimension={(op.details.dimensions or (0,))[0]}"],
    "dot": _dot,
    "convolution": _Writer.convolution,
    "custom-call": _Writer.custom_call,
    "fusion": _fusion,
    "get-tuple-element": lambda op: [f"index={op.details.tuple_index}"],
    "gather": _gather,
    "scatter": _scatter,
    "sort": lambda op: _flags(is_stable=op.number(_STABLE)),
    "reduce-window": _Writer.window,
    "select-and-scatter": _Writer.window,
    "compare": _compare,
    "fft": lambda op: [
        f"fft_type={_name_of(_FFTS, op.number(_FFT_TYPE))}",
        f"fft_length={_braced(op.details.fft_length)}",
    ],
    "reduce-precision": lambda op: [
        f"exponent_bits={op.number(_EXPONENT)}",
        f"mantissa_bits={op.number(_MANTISSA)}",
    ],
    "rng": lambda op: [f"distribution={_name_of(_DISTRIBUTIONS, op.number(_DISTRIBUTION))}"],
    "rng-bit-generator": lambda op: [f"algorithm={_name_of(_ALGORITHMS, op.number(_ALGORITHM))}"],
    "rng-get-and-update-state": lambda op: [f"delta={op.number(_DELTA)}"],
    "batch-norm-training": _normalized,
    "batch-norm-inference": _normalized,
    "batch-norm-grad": _normalized,
    "collective-permute": _pairs,
    "collective-permute-start": _pairs,
    "send": _host,
    "send-done": _host,
    "recv": _host,
    "recv-done": _host,
    "outfeed": _outfeed,
    "triangular-solve": _triangular,
    "cholesky": _cholesky,
    "topk": _top,
    "copy-start": _copy_start,
}
"""Writers of the attributes that only some ops have, by opcode."""


_DIGITS = {"f": (6, 9), "d": (15, 17)}


def _short_number(value: float, form: str = "f") -> str:
    """A number with 6 digits if they are exact, else with 9; a float64 with 15 or 17."""
    few, many = _DIGITS[form]
    text = f"{value:.{few}g}"
    try:
        same = struct.pack(form, float(text)) == struct.pack(form, value)
    except OverflowError:
        same = False
    return text if same else f"{value:.{many}g}"
