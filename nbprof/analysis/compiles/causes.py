"""The cause of a compilation, by the message of its framework and by the values that differ.

Each framework has words of its own for one cause; what none of the patterns knows is `UNKNOWN`.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import NamedTuple

from nbprof.core import compile_times
from nbprof.core.compile_times import Compilation
from nbprof.frameworks.register import JAX, TENSORFLOW

FIRST_CALL, UNKNOWN = "first_call", "unknown"
SHAPE, DTYPE, WEAK_TYPE, STRIDE = "shape", "dtype", "weak_type", "stride"
REQUIRES_GRAD, PLACEMENT, SHARDING = "requires_grad", "placement", "sharding"
LAYOUT, DONATION = "layout", "donation"
STRUCTURE, NONE_OR_VALUE, TYPE = "structure", "none_or_value", "type"
PYTHON_VALUE, ATTRIBUTE, GLOBAL, OBJECT = "python_value", "attribute", "global", "object"
GRAD_MODE, TRAINING_MODE, SETTING = "grad_mode", "training_mode", "setting"
NEW_FUNCTION, REDEFINED = "new_function", "redefined"
GRAPH_BREAK, BACKEND, ALIASING = "graph_break", "backend", "aliasing"

KINDS = {
    FIRST_CALL: "the first call of the function",
    SHAPE: "another shape",
    DTYPE: "another dtype",
    WEAK_TYPE: "a Python scalar where an array was, or an array where one was (weak type)",
    STRIDE: "other strides, as of a transposed tensor",
    REQUIRES_GRAD: "a tensor that requires gradients, or one that does not",
    PLACEMENT: "another device, or an array committed to a device where one was not",
    SHARDING: "another sharding",
    LAYOUT: "another layout in memory",
    DONATION: "an argument that is donated, or one that is not",
    STRUCTURE: "containers with other keys, lengths or types",
    NONE_OR_VALUE: "None where a value was, or a value where None was",
    TYPE: "a value of another Python type",
    PYTHON_VALUE: "another Python value, as of a static argument",
    ATTRIBUTE: "another value of an attribute",
    GLOBAL: "another value of a global variable",
    OBJECT: "another Python object",
    GRAD_MODE: "gradients switched on or off",
    TRAINING_MODE: "model.train() or model.eval()",
    SETTING: "another setting of the framework",
    NEW_FUNCTION: "another function object of the same code, made in this recording",
    REDEFINED: "a function defined again since an earlier recording",
    GRAPH_BREAK: "the rest of a function after a graph break",
    BACKEND: "another backend of torch.compile",
    ALIASING: "one tensor passed for several arguments, or no longer",
    UNKNOWN: "not known",
}
"""Causes, with their meaning."""


class Cause(NamedTuple):
    """Why something was compiled.

    Attributes
    ----------
    kind : str
        One of `KINDS`.
    argument : str
        What differs; "" where nothing is known to.
    before, after : str
        Its values, as far as they are known.
    why : str
        A sentence without its full stop; "" for `UNKNOWN`.
    """

    kind: str
    argument: str = ""
    before: str = ""
    after: str = ""
    why: str = ""


_UNKNOWN = Cause(UNKNOWN)
_OF_STATE = {
    compile_times.FIRST: Cause(FIRST_CALL, why="first call"),
    compile_times.MADE_AGAIN: Cause(
        NEW_FUNCTION,
        why="it is a new function object of code that was compiled before in this recording",
    ),
    compile_times.REDEFINED: Cause(
        REDEFINED,
        why="the function was defined again, as by running its cell again, since it was compiled in"
        " an earlier recording",
    ),
    compile_times.PLACED: Cause(PLACEMENT, why="the arguments are on another device"),
}
RESUMED = re.compile(r"^torch_dynamo_resume_in_(?P<function>.*)_at_(?P<line>\d+)$")
"""Names of what Dynamo compiles after a graph break."""


def cause_of(compilation: Compilation, breaks: Sequence[str] = ()) -> Cause:
    """The cause of a compilation.

    Parameters
    ----------
    compilation : Compilation
    breaks : sequence of str
        The graph breaks so far: ``file:line: reason``.
    """
    again = compilation.state == compile_times.AGAIN
    resumed = RESUMED.match(compilation.function)
    if resumed is not None and not again:
        return _after_break(compilation, resumed["line"], breaks)
    if not again:
        return _OF_STATE.get(compilation.state, _UNKNOWN)
    if compilation.framework == TENSORFLOW.name:
        return of_types(compilation.argument, compilation.before, compilation.after)
    if compilation.framework == JAX.name and compilation.argument:
        return of_lowering(
            compilation.reason, compilation.argument, compilation.before, compilation.after
        )
    if compilation.framework == JAX.name:
        return of_cache_miss(compilation.reason)
    return of_guard(compilation.reason, compilation.after)


def _after_break(compilation: Compilation, line: str, breaks: Sequence[str]) -> Cause:
    begins = f"{compilation.file}:{line}: "
    for text in reversed(breaks):
        if text.startswith(begins):
            reason = text.removeprefix(begins)
            return Cause(GRAPH_BREAK, why=f"the graph breaks in line {line}: {reason}")
    return Cause(GRAPH_BREAK, why=f"the graph breaks in line {line}")


# JAX

_TYPES = re.compile(
    r"^\s*\* at (?P<name>.+?), (?:now (?P<now>.+?) and before (?P<before>.+)"
    r"|seen (?P<seen>.+), but now given (?P<given>.+))$"
)
_ARRAY = re.compile(
    r"^(?P<dtype>[^\[{]+)\[(?P<shape>[^\]]*)\](?P<rest>.*?)(?:\{weak_type=(?P<weak>\w+)\})?$"
)
_MESH = re.compile(r"\(\{.*\}\)")
_TREE = re.compile(r"^\s*\* at input path (?P<path>\S+?), now (?P<now>.+?) and before (?P<rest>.+)")
_STATIC = re.compile(r"Static\(val=(?P<value>.+?)\)(?=$| and before|, so )")
_CONTEXT = re.compile(r"^\s*\* (?P<name>\w+) differs: now (?P<now>.+) and before (?P<before>.+)$")
_DEVICE = r"\w+:\d+\Z"
_PLACE = re.compile(rf"(?:uncommitted|unspecified)\Z|{_DEVICE}")
_LINK = re.compile(r"https://\S*")
"""JAX appends one to a line."""
_POSITION = re.compile(r"^\[0\]\[(\d+)\]")
_KEYWORD = re.compile(r"^\[1\]\['?(\w+)'?\]")


def of_cache_miss(text: str) -> Cause:
    """The cause that JAX's explanation of a miss of its tracing cache states."""
    for line in _LINK.sub("", text).splitlines():
        tree, types, setting = _TREE.match(line), _TYPES.match(line), _CONTEXT.match(line)
        if tree is not None:
            return _of_tree(tree["path"], tree["now"], tree["rest"])
        if types is not None:
            now = types["now"] or types["given"]
            before = types["before"] or types["seen"]
            return _of_arrays(types["name"], before, now)
        if setting is not None:
            name, before, now = setting["name"], setting["before"], setting["now"]
            return Cause(
                SETTING, name, before, now, f"the setting {name} is {now} and was {before}"
            )
    return _UNKNOWN


def _of_arrays(name: str, before: str, now: str) -> Cause:
    """Two types of one argument, as ``f32[8,3]``."""
    old, new = _ARRAY.match(before), _ARRAY.match(now)
    if old is None or new is None:
        return _UNKNOWN
    old_text, new_text = f"{old['dtype']}[{old['shape']}]", f"{new['dtype']}[{new['shape']}]"
    if old["dtype"] != new["dtype"]:
        why = f"{name} is {new_text} and was {old_text}"
        return Cause(DTYPE, name, old["dtype"], new["dtype"], why)
    if _sizes(old["shape"]) != _sizes(new["shape"]):
        why = f"{name} is {new_text} and was {old_text}"
        return Cause(SHAPE, name, f"[{old['shape']}]", f"[{new['shape']}]", why)
    if old["weak"] != new["weak"]:
        words = {"True": "a Python scalar", "False": "an array"}
        was, is_now = words.get(old["weak"] or "", ""), words.get(new["weak"] or "", "")
        why = f"{name} is {is_now} and was {was}, both {new_text}: their weak types differ"
        return Cause(WEAK_TYPE, name, was, is_now, why)
    if before != now:
        was, is_now = _MESH.sub(_mesh, before), _MESH.sub(_mesh, now)
        return Cause(SHARDING, name, was, is_now, f"{name} is {is_now} and was {was}")
    return _UNKNOWN


def _mesh(match: re.Match[str]) -> str:
    """A mesh in the type of an array: ``({Auto: ('x',)})`` by its axes."""
    axes = re.findall(r"'(\w+)'", match[0])
    return f" on mesh({', '.join(axes)})" if axes else " on no mesh"


def of_lowering(parameter: str, argument: str, before: str, now: str) -> Cause:
    """The cause of a program that was traced before, and is lowered in another way.

    Parameters
    ----------
    parameter : str
        What differs, as JAX names it.
    argument : str
        The argument of the program that it concerns, or a parameter of `jax.jit`.
    before, now : str
        Its values.
    """
    differs = f"{argument} is {now} and was {before}"
    if parameter == "donated_invars":
        return Cause(DONATION, argument, before, now, differs)
    if parameter in ("in_layouts", "out_layouts"):
        return Cause(LAYOUT, argument, before, now, f"the layout of {differs}")
    if parameter not in ("in_shardings", "out_shardings"):
        return Cause(SETTING, argument, before, now, f"the setting {differs}")
    if all(_PLACE.match(value) for value in (before, now)):
        differs = " and was ".join(re.sub(_DEVICE, r"on \g<0>", value) for value in (now, before))
        return Cause(PLACEMENT, argument, before, now, f"{argument} is {differs}")
    return Cause(SHARDING, argument, before, now, differs)


def _sizes(shape: str) -> list[str]:
    """The sizes of a shape, without the axes of a mesh."""
    return [size.partition("@")[0] for size in shape.split(",")]


def _of_tree(path: str, now: str, rest: str) -> Cause:
    """Two structures of the arguments."""
    before, _, explanation = rest.partition(", so ")
    name = _argument(path)
    new, old = _STATIC.search(now), _STATIC.search(before)
    if new is not None and old is not None:
        value, was = new["value"], old["value"]
        why = f"the static value of {name} is {value} and was {was}"
        return Cause(PYTHON_VALUE, name, was, value, why)
    now, before = _class(now), _class(before)
    if "NoneType" in (now, before):
        now, before = now.replace("NoneType", "None"), before.replace("NoneType", "None")
        return Cause(NONE_OR_VALUE, name, before, now, f"{name} is {now} and was {before}")
    why = f"{name} is {now} and was {before}"
    if explanation and now == before:
        why = f"{name} has another structure: {explanation.partition(', with')[0]}"
    return Cause(STRUCTURE, name, before, now, why)


def _argument(path: str) -> str:
    """The argument that a path of JAX begins with: ``[0][1]`` is the second one."""
    if (position := _POSITION.match(path)) is not None:
        return f"argument {int(position[1]) + 1}"
    if (keyword := _KEYWORD.match(path)) is not None:
        return keyword[1]
    return "the call"


def _class(text: str) -> str:
    return re.sub(r"<class '(?:\w+\.)*(\w+)'>", r"\1", text)


# PyTorch

_ID = re.compile(r"^\d+/\d+(?:_\d+)?: ")
_COMMENT = re.compile(r"\s{2,}# .*$", re.S)
_TENSOR = re.compile(
    r"tensor '(?P<name>.+?)' (?P<what>[\w ]+?) mismatch(?: at index (?P<index>\d+))?\."
    r"(?: expected (?P<before>.+?)(?:, actual (?P<now>.+))?)?$"
)
_TENSOR_KINDS = {
    "size": SHAPE,
    "rank": SHAPE,
    "dtype": DTYPE,
    "stride": STRIDE,
    "requires_grad": REQUIRES_GRAD,
    "device index": PLACEMENT,
    "dispatch key set": PLACEMENT,
}
_STATE = re.compile(r"GLOBAL_STATE changed: (?P<what>.+)")
_PATH = r"[A-Za-z_][\w.\[\]'\"]*"
_LENGTH = re.compile(rf"len\((?P<name>{_PATH})\) (?P<how>==|!=) (?P<before>\d+)")
_EQUAL = re.compile(rf"(?P<name>{_PATH}) (?:==|is) (?P<before>.+)")
_CHECK = re.compile(rf"___check_(?P<what>type_id|obj_id)\((?P<name>{_PATH}), .*?\)(?P<rest>.*)")
_CONTAINS = re.compile(r"(?:not )?___dict_contains\(|\.keys\(|___tuple_iterator|set\(")
_TYPE = re.compile(r"type=<class '(?:\w+\.)*(\w+)'>")
_FLAGS = {"0": "False", "1": "True"}


def of_guard(text: str, now: str = "") -> Cause:
    """The cause that a failed guard of Dynamo states.

    Parameters
    ----------
    text : str
        As in PyTorch's metrics of compilations: ``0/0: tensor 'x' dtype mismatch. …``
    now : str
        The value of now of what the guard compares; "" if unknown.
    """
    guard = _COMMENT.sub("", _ID.sub("", text)).strip()
    cause = _of_tensor(guard) or _of_state(guard) or _of_containers(guard, now)
    return cause or _of_identity(guard, now) or _of_value(guard, now) or _UNKNOWN


def _of_tensor(guard: str) -> Cause | None:
    match = _TENSOR.search(guard)
    if match is None:
        if re.search(r"\.size\(\)\[\d+\]", guard):
            return Cause(SHAPE, why=f"a size no longer satisfies {guard}")
        if ".stride()[" in guard:
            return Cause(STRIDE, why=f"a stride no longer satisfies {guard}")
        return None
    kind = _TENSOR_KINDS.get(match["what"])
    if kind is None:
        return None
    name, before, after = match["name"], match["before"] or "", match["now"] or ""
    if kind == REQUIRES_GRAD:
        before = _FLAGS.get(before.removeprefix("requires_grad="), before)
        after = {"True": "False", "False": "True"}.get(before, "")
        return Cause(kind, name, before, after, f"requires_grad of {name} is no longer {before}")
    if match["what"] == "dispatch key set" and _backend(before) == _backend(after):
        return None
    subject = {"size": f"size {match['index']}", "rank": "the number of dimensions"}.get(
        match["what"], match["what"]
    )
    return Cause(kind, name, before, after, f"{subject} of {name} is {after} and was {before}")


def _backend(keys: str) -> set[str]:
    return set(re.findall(r"\b(CPU|CUDA|XPU|MPS|HPU|PrivateUse1|Meta)\b", keys))


def _of_state(guard: str) -> Cause | None:
    match = _STATE.search(guard)
    if match is not None:
        setting = match["what"].strip()
        if "grad_mode" in setting:
            return Cause(GRAD_MODE, why="gradients are switched on and were off, or the reverse")
        return Cause(SETTING, setting, why=f"the setting {setting} has changed")
    if guard.startswith("BACKEND_MATCH"):
        return Cause(BACKEND, why="torch.compile was called with another backend object")
    if "Duplicate tensor" in guard:
        return Cause(ALIASING, why="one tensor is passed for several arguments, or no longer is")
    return None


def _of_containers(guard: str, now: str) -> Cause | None:
    match = _LENGTH.match(guard)
    if match is not None:
        name, before = match["name"], match["before"]
        if match["how"] == "!=":
            return Cause(STRUCTURE, name, why=f"the length of {name} has changed")
        why = f"the length of {name} is {now or 'no longer'} {'and was ' if now else ''}{before}"
        return Cause(STRUCTURE, name, before, now, why)
    if _CONTAINS.search(guard):
        return Cause(STRUCTURE, why=f"the keys of a dictionary have changed: {guard}")
    return None


def _of_identity(guard: str, now: str) -> Cause | None:
    match = _CHECK.match(guard)
    if match is None:
        if "deallocated" in guard or "got deleted" in guard:
            return Cause(OBJECT, why="an object that the compiled function uses was deleted")
        return None
    name = match["name"]
    if match["what"] == "obj_id":
        return Cause(OBJECT, name, why=f"{name} is another object")
    kind = _TYPE.search(match["rest"])
    before = kind[1] if kind is not None else ""
    if before == "NoneType":
        return Cause(NONE_OR_VALUE, name, "None", now, f"{name} is no longer None")
    if now == "None":
        return Cause(NONE_OR_VALUE, name, before, "None", f"{name} is None and was {before}")
    was = f" and was {before}" if before else ""
    return Cause(TYPE, name, before, now, f"{name} has another type{was}")


def _of_value(guard: str, now: str) -> Cause | None:
    """A guard that compares a plain value."""
    match = _EQUAL.match(guard)
    if match is None:
        return None
    path, before = match["name"], re.sub(r"\s*\(HINT.*$", "", match["before"], flags=re.S).strip()
    was = f"is {now} and was {before}" if now else f"is no longer {before}"
    if path.endswith(".training"):
        module = path.removesuffix(".training")
        return Cause(TRAINING_MODE, path, before, now, f"the training mode of {module} {was}")
    if path.startswith("G["):
        name = path[2:].replace("']", "", 1).replace('"]', "", 1).strip("'\"")
        return Cause(GLOBAL, name, before, now, f"the global variable {name} {was}")
    if "None" in (before, now):
        return Cause(NONE_OR_VALUE, path, before, now, f"{path} {was}")
    kind = ATTRIBUTE if "." in path else PYTHON_VALUE
    return Cause(kind, path, before, now, f"{path} {was}")


# TensorFlow

_SPEC = re.compile(r"TensorSpec\(shape=(?P<shape>.*?), dtype=(?P<dtype>[\w.]+), name=[^)]*\)")
_LITERAL = re.compile(r"^Literal\[(?P<value>.*)\]$", re.S)
_LEAF = re.compile(r"TensorSpec\(.*?name=[^)]*\)|Literal\[[^\]]*\]")


def of_types(argument: str, before: str, now: str) -> Cause:
    """The cause that two types of an argument of a `tf.function` state."""
    name = argument
    old, new = _LITERAL.match(before), _LITERAL.match(now)
    values = [each["value"] for each in (old, new) if each is not None]
    if "None" in values:
        was, is_now = _short(before), _short(now)
        return Cause(NONE_OR_VALUE, name, was, is_now, f"{name} is {is_now} and was {was}")
    if values:
        was, is_now = _short(before), _short(now)
        why = f"the Python value {name} is {is_now} and was {was}"
        return Cause(PYTHON_VALUE, name, was, is_now, why)
    old_spec, new_spec = _SPEC.fullmatch(before), _SPEC.fullmatch(now)
    if old_spec is not None and new_spec is not None:
        return _of_specs(name, old_spec, new_spec)
    if before.startswith("Weakref[") and now.startswith("Weakref["):
        return Cause(OBJECT, name, why=f"{name} is another Python object")
    old_leaves, new_leaves = _LEAF.findall(before), _LEAF.findall(now)
    same = _LEAF.sub("*", before) == _LEAF.sub("*", now)
    if same and len(old_leaves) == len(new_leaves):
        for was, is_now in zip(old_leaves, new_leaves, strict=True):
            if was != is_now:
                return of_types(f"a value in {name}", was, is_now)
        return _UNKNOWN
    if not before or not now:
        return Cause(STRUCTURE, name, why=f"the argument {name} is new, or no longer passed")
    return Cause(
        STRUCTURE, name, _short(before), _short(now), f"{name} has another nested structure"
    )


def _of_specs(name: str, old: re.Match[str], new: re.Match[str]) -> Cause:
    was, is_now = _short(old[0]), _short(new[0])
    why = f"{name} is {is_now} and was {was}"
    if old["dtype"] != new["dtype"]:
        return Cause(DTYPE, name, *_dtypes(old, new), why)
    if old["shape"] != new["shape"]:
        return Cause(SHAPE, name, old["shape"], new["shape"], why)
    return _UNKNOWN


def _dtypes(old: re.Match[str], new: re.Match[str]) -> tuple[str, str]:
    return old["dtype"].removeprefix("tf."), new["dtype"].removeprefix("tf.")


def _short(text: str) -> str:
    """A type as people write it: ``float32(8, 3)``, or the value of a literal."""
    text = _SPEC.sub(lambda spec: f"{spec['dtype'].removeprefix('tf.')}{spec['shape']}", text)
    literal = _LITERAL.match(text)
    return literal["value"] if literal is not None else text
