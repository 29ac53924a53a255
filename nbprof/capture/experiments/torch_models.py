"""Experiments on modules of PyTorch: torch.compile, bfloat16, channels last, inference mode."""

from __future__ import annotations

import ast
import sys
from collections.abc import Callable, Sequence
from typing import Any

from nbprof.capture.experiments.edits import Find, located, made_by_program, name_of
from nbprof.capture.experiments.experiment import Change, Experiment
from nbprof.capture.experiments.observation import Observation, around_roots
from nbprof.capture.experiments.source import Edit, Located, Source
from nbprof.capture.patches import Patches

_HOST = ("tiny_eager_ops", "time_loop", "host_ops", "host_bound", "small_kernels")


class Compiled(Change):
    """Outermost modules are compiled in place; the program's other code runs as it is.

    Parameters
    ----------
    observation : Observation
    """

    def __init__(self, observation: Observation) -> None:
        self._modules = {id(root.module) for root in observation.roots}
        # With the module itself, so that no other one gets its address.
        self._calls: dict[int, tuple[Any, Any]] = {}
        # The compiler wraps some of them for good when it first runs.
        self._methods = dict(vars(sys.modules["torch"].nn.Module))

    def apply(self, patches: Patches) -> None:  # noqa: D102
        compiled: set[int] = set()

        def around(module: Any, call: Callable[..., Any], args: Any, kwargs: Any) -> Any:
            if id(module) not in compiled:
                compiled.add(id(module))
                patches.on_restore(lambda: setattr(module, "_compiled_call_impl", None))
                module._compiled_call_impl = self._compiled(module)
            if len(compiled) == len(self._modules):
                # The compiler reads the calls of modules as PyTorch has them.
                end()
            return call(module, *args, **kwargs)

        end = around_roots(patches, around)

    def _compiled(self, module: Any) -> Any:
        if id(module) not in self._calls:
            compiled = sys.modules["torch"].compile(module._call_impl)
            if id(module) not in self._modules:
                return compiled
            self._calls[id(module)] = module, compiled
        return self._calls[id(module)][1]

    def close(self) -> None:  # noqa: D102
        self._calls.clear()
        if "torch._dynamo" not in sys.modules:
            return
        report = sys.unraisablehook
        # Variables that it had added to the modules of the program were taken out with the others.
        sys.unraisablehook = _but_missing(report)
        try:
            sys.modules["torch._dynamo"].reset()
            # By these `_not_compiled` sees whether the program has used the compiler.
            sys.modules["torch._dynamo.utils"].counters.clear()
        finally:
            sys.unraisablehook = report
            self._put_back_methods()

    def _put_back_methods(self) -> None:
        module = sys.modules["torch"].nn.Module
        for name, value in dict(vars(module)).items():
            if name not in self._methods:
                delattr(module, name)
            elif value is not self._methods[name]:
                setattr(module, name, self._methods[name])


def _but_missing(
    report: Callable[[sys.UnraisableHookArgs], Any],
) -> Callable[[sys.UnraisableHookArgs], Any]:
    def hook(unraisable: sys.UnraisableHookArgs) -> None:
        if not isinstance(unraisable.exc_value, KeyError):
            report(unraisable)

    return hook


class Around(Change):
    """Outermost calls of modules run in a context, or with changed arguments.

    Parameters
    ----------
    call : callable
        Of the module, its original call, its arguments and keywords.
    """

    def __init__(self, call: Callable[[Any, Callable[..., Any], Any, Any], Any]) -> None:
        self._call = call

    def apply(self, patches: Patches) -> None:  # noqa: D102
        around_roots(patches, self._call)


def _in_bfloat16(module: Any, call: Callable[..., Any], args: Any, kwargs: Any) -> Any:
    torch = sys.modules["torch"]
    with torch.autocast(_device(module), dtype=torch.bfloat16):
        return _in_float32(call(module, *args, **kwargs))


def _in_float32(output: Any) -> Any:
    torch = sys.modules["torch"]
    if isinstance(output, torch.Tensor) and output.dtype == torch.bfloat16:
        return output.float()
    return output


def _for_inference(module: Any, call: Callable[..., Any], args: Any, kwargs: Any) -> Any:
    torch = sys.modules["torch"]
    if module.training or not torch.is_grad_enabled():
        return call(module, *args, **kwargs)
    with torch.inference_mode():
        return call(module, *args, **kwargs)


class ChannelsLast(Change):
    """Weights of convolutions have their channels last in memory, and so what they return."""

    def apply(self, patches: Patches) -> None:  # noqa: D102
        changed: set[int] = set()

        def around(module: Any, call: Callable[..., Any], args: Any, kwargs: Any) -> Any:
            if id(module) not in changed:
                changed.add(id(module))
                for parameter in module.parameters():
                    if parameter.ndim == 4:
                        self._convert(parameter, patches)
            # Convolutions take images in either order, and give them back in that of the weights.
            return call(module, *args, **kwargs)

        around_roots(patches, around)

    @staticmethod
    def _convert(parameter: Any, patches: Patches) -> None:
        before = parameter.data

        def put_back() -> None:
            before.copy_(parameter.data)
            parameter.data = before

        patches.on_restore(put_back)
        parameter.data = before.to(memory_format=sys.modules["torch"].channels_last)


def _device(module: Any) -> str:
    for parameter in module.parameters():
        return str(parameter.device.type)
    return "cpu"


def _no_roots(observation: Observation) -> str:
    return "" if observation.roots else "no module of PyTorch was called"


def _not_compiled(observation: Observation) -> str:
    if why := _no_roots(observation):
        return why
    torch = sys.modules["torch"]
    for root in observation.roots:
        if isinstance(root.module, torch.jit.ScriptModule):
            return "the model is compiled by TorchScript"
        if root.module._compiled_call_impl is not None:
            return "the model is compiled already"
    counters = getattr(sys.modules.get("torch._dynamo.utils"), "counters", {})
    if counters.get("frames"):
        return "torch.compile was used in this process, whose compiled code would be dropped"
    return ""


def _not_bfloat16(observation: Observation) -> str:
    if why := _no_roots(observation):
        return why
    torch = sys.modules["torch"]
    module = observation.roots[0].module
    kinds = {parameter.dtype for parameter in module.parameters()}
    if torch.float32 not in kinds:
        return "the model has no weights in float32"
    if torch.is_autocast_enabled(_device(module)):
        return "autocast is enabled already"
    return ""


def _not_channels_last(observation: Observation) -> str:
    if not any(root.images for root in observation.roots):
        return "no model has images, of four dimensions, as its input"
    torch = sys.modules["torch"]
    weights = [
        parameter
        for root in observation.roots
        for parameter in root.module.parameters()
        if parameter.ndim == 4
    ]
    if not weights:
        return "the model has no convolutions"
    if all(weight.is_contiguous(memory_format=torch.channels_last) for weight in weights):
        return "the weights have their channels last already"
    return ""


def _not_inference(observation: Observation) -> str:
    if why := _no_roots(observation):
        return why
    if any(root.graded and not root.training for root in observation.roots):
        return ""
    return "no model in evaluation mode is called with gradients enabled"


def _modules(observation: Observation) -> list[Any]:
    return list({id(root.module): root.module for root in observation.roots}.values())


def _below_assignments(code: Callable[[Source, str], str]) -> Find:
    """A line below the assignment of each module, if the cell makes them.

    Parameters
    ----------
    code : callable
        The line, by the source and the name of the module; empty if it cannot be written.
    """

    def find(source: Source, observed: Sequence[Observation]) -> Located | None:
        edits = []
        for module in made_by_program(_modules, observed):
            name = name_of(observed, module)
            statement = source.assignment(name) if name else None
            line = code(source, name)
            if statement is None or not line:
                return None
            edits.append(source.after(statement, line))
        return located(source, *edits)

    return find


def _with_channels_last(source: Source, name: str) -> str:
    torch = source.name_of(sys.modules["torch"])
    return f"{name}.to(memory_format={torch}.channels_last)" if torch else ""


def _inference_in_source(source: Source, observed: Sequence[Observation]) -> Located | None:
    """The only call of each module that is in evaluation mode and has gradients, in a block."""
    torch = source.name_of(sys.modules["torch"])
    roots = observed[0].roots
    modules = {id(root.module): root.module for root in roots if root.graded and not root.training}
    # Its only call in the cell may be that of the training.
    if any(root.training and id(root.module) in modules for root in roots):
        return None
    edits = []
    for module in modules.values():
        call = _only_call(source, name_of(observed, module))
        if call is None or not torch:
            return None
        edits.append(source.in_block(call, f"with {torch}.inference_mode():"))
    return located(source, *edits)


def _bfloat16_in_source(source: Source, observed: Sequence[Observation]) -> Located | None:
    """The only call of each module in a block, with its result in float32 as the experiment has it.

    Only where the statement computes nothing else but a loss of it, which the block leaves as it
    is.
    """
    torch = source.name_of(sys.modules["torch"])
    # Losses compute in float32 in the block, too.
    roots = [root for root in observed[0].roots if not _is_loss(root.module)]
    if not torch or not all(root.gives_floats for root in roots):
        return None
    edits: list[Edit | None] = []
    for module in {id(root.module): root.module for root in roots}.values():
        call = _only_call(source, name_of(observed, module))
        if call is None or not _is_it_or_its_loss(source, call):
            return None
        header = f'with {torch}.autocast("{_device(module)}", dtype={torch}.bfloat16):'
        edits += [source.in_block(call, header), source.method_called(call, "float")]
    return located(source, *edits)


def _only_call(source: Source, name: str) -> ast.Call | None:
    calls = []
    for call in source.calls():
        if isinstance(call.func, ast.Name) and call.func.id == name:
            calls.append(call)
    return calls[0] if name and len(calls) == 1 else None


def _is_loss(function: object) -> bool:
    return isinstance(function, sys.modules["torch"].nn.modules.loss._Loss)


def _is_it_or_its_loss(source: Source, call: ast.Call) -> bool:
    """Return whether a statement assigns what a call returns, or a loss of that and of names."""
    statement = source.statement_of(call)
    if not isinstance(statement, ast.Assign) or not isinstance(statement.value, ast.Call):
        return False
    outer = statement.value
    if not _is_of_names(call):
        return False
    if outer is call:
        return True
    function = source.value(outer.func)
    of_functional = (
        getattr(function, "__module__", "") == sys.modules["torch"].nn.functional.__name__
    )
    if not of_functional and not _is_loss(function):
        return False
    return _is_of_names(outer, call)


def _is_of_names(call: ast.Call, besides: ast.expr | None = None) -> bool:
    """Return whether a call takes variables alone, and one other expression."""
    values = [*call.args, *(keyword.value for keyword in call.keywords)]
    return all(value is besides or isinstance(value, ast.Name) for value in values)


EXPERIMENTS = (
    Experiment(
        "torch_compile",
        "torch.compile",
        "torch",
        (*_HOST, "elementwise_kernels"),
        _not_compiled,
        Compiled,
        "+ model.compile()",
        touches=("modules",),
        edit=_below_assignments(lambda _, name: f"{name}.compile()"),
    ),
    Experiment(
        "bfloat16",
        "bfloat16 by autocast",
        "torch",
        ("cpu_bf16", "mixed_precision", "tensor_cores"),
        _not_bfloat16,
        lambda _: Around(_in_bfloat16),
        "- loss = loss_of(model(x), y)\n"
        '+ with torch.autocast("cpu", dtype=torch.bfloat16):\n'
        "+     loss = loss_of(model(x), y)",
        touches=("modules",),
        edit=_bfloat16_in_source,
    ),
    Experiment(
        "channels_last",
        "channels last in memory",
        "torch",
        ("tensor_cores", "gemm_alignment"),
        _not_channels_last,
        lambda _: ChannelsLast(),
        "+ model = model.to(memory_format=torch.channels_last)",
        touches=("modules",),
        edit=_below_assignments(_with_channels_last),
    ),
    Experiment(
        "inference_mode",
        "inference mode",
        "torch",
        (*_HOST, "validation"),
        _not_inference,
        lambda _: Around(_for_inference),
        "- output = model(x)\n+ with torch.inference_mode():\n+     output = model(x)",
        touches=("modules",),
        edit=_inference_in_source,
    ),
)
