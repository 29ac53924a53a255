"""PyTorch."""

from __future__ import annotations

import sys

from nbprof.frameworks.framework import Doctor, Framework, Hint, Recorder, Words


def _in_use() -> bool:
    started = getattr(getattr(sys.modules.get("torch"), "cuda", None), "is_initialized", None)
    return started is not None and bool(started())


FRAMEWORK = Framework(
    name="torch",
    title="PyTorch",
    packages=("torch", "lightning", "pytorch_lightning"),
    uses=("torchvision",),
    recorder=Recorder(
        module="torch",
        code=r"\b(?:torch|torchvision|lightning)\b",
        backend="nbprof.capture.torch:TorchBackend",
        files="*.pt.trace.json.gz",
        signs=(
            b'"cat": "cpu_op"',
            b'"cat":"cpu_op"',
            b'"cat": "kernel"',
            b'"cat": "cuda_runtime"',
            b'"cat": "Operator"',
        ),
        has_server=True,
        in_use=_in_use,
    ),
    doctor=Doctor(
        "torch",
        ("torch",),
        "import torch; print(*['cpu', *(torch.cuda.get_device_name(i) for i in"
        " range(torch.cuda.device_count()))], sep=', ')\nprint('CUDA', torch.version.cuda, 'HIP',"
        " torch.version.hip)",
    ),
    words=Words(
        mark_steps=Hint(
            "No steps found, so step time is unknown.",
            "The loop did not call prof.step() during the recording. Call it at the end of each"
            " iteration:",
            "with torch.profiler.profile(schedule=torch.profiler.schedule(wait=1, warmup=1,"
            " active=10)) as prof:\n    for batch in loader:\n        train_step(batch)\n       "
            " prof.step()",
        ),
        # A recording by nbprof has no `prof`.
        mark_steps_in_cell=Hint(
            "No steps found, so step time is unknown.",
            "No step of an optimizer of torch.optim was recorded. In a loop without one, mark the"
            " steps:",
            "import nbprof\n\nfor batch in nbprof.steps(loader):\n    train_step(batch)",
        ),
        mark_ranges=(
            'put "with torch.profiler.record_function(name):" around a part of the step, such as'
            " the forward pass."
        ),
        loader="a torch.utils.data.DataLoader",
        copy_ahead=(
            "From pinned memory (pin_memory=True of a DataLoader, or tensor.pin_memory()), and"
            " non_blocking=True, they overlap compute."
        ),
        list_gpus="torch.cuda.is_available()",
        record_python_calls=(
            "-with torch.profiler.profile() as prof:\n+with torch.profiler.profile(with_stack=True)"
            " as prof:\n     train()"
        ),
        compile_step=(
            "-loss = step(batch)\n+step = torch.compile(step)  # one call a step in place of"
            " many\n+loss = step(batch)"
        ),
        compile_ops="torch.compile turns many ops into one program.",
        occupancy="as PyTorch estimated it from the launch",
    ),
    records_compilation=True,
)
