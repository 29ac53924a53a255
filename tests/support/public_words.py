"""Makes nbprof/display/public_words.txt: the words in names that frameworks and their libraries
give to ops, layers and kernels.

`python -m tests.support.public_words`, with TensorFlow, JAX, PyTorch and Keras installed. Words
that an older version had stay.
"""

from __future__ import annotations

import importlib
import re
from collections.abc import Iterator
from pathlib import Path

from nbprof.display.redact import words

TARGET = Path(__file__).parents[2] / "nbprof" / "display" / "public_words.txt"

# Of kernels and runtime calls, whose names no registry lists.
OF_LIBRARIES = """
ampere hopper volta turing pascal maxwell blackwell gfx xmma hmma imma wmma gemm gemmk gemv sgemm dgemm hgemm igemm splitk streamk cutlass cudnn cublas cublaslt
cufft cusolver cusparse curand cub thrust cupti cuda hip rocm rocblas miopen hipblas nccl rccl hccl gloo mpi triton inductor xla pjrt eigen mkldnn onednn mkl tensorrt
tensorile cijk ailk bljk alik bjlk hbh bbs sgemmk interior implicit convolve scudnn nhwc nchw nhwckrsc kcrs wgrad dgrad fprop bprop relu ldg stg ldgsts tile
warpgroupsize tilesize stage warpspecialized cooperative pingpong align tn nt nn tt ntn tnn sm fp bf tf int uint e4m3 e5m2 unroll unrolled vectorized elementwise
kernel kernels impl templates launcher functor op ops apply binary unary reduce reduction scan softmax warp block grid persistent masked fill copy memcpy memset
htod dtoh dtod htoh async stream event synchronize launch graph exec occupancy device host pageable pinned kineto aten autograd backward forward profiler step
record function user annotation python frame optimizer zero grad dataloader iter next enumerate module nn loss jit pjit vmap transpose fusion custom call
thunk executable executor infeed outfeed send recv done start permute gather scatter slice dynamic update broadcast iota concatenate wsgrb wgm grvw gsu glvwa glvwb lbspp lpa lpb pgr plr sia tlds vwc segment off execute
winograd nonfused kreduce singleread sliced xregs cgemm zgemm gemvx gemvnsp cask cunn maxpooling propagation divisor warpsize detail
radix onesweep exclusive policy histogram compact agent agents modifier equality multiplies nullptr decltype epilogue accessor trivial calculator evaluator reshaping conversion counting
pointer bfc tfe cancelable cleanup atomics xent reorder preserving cmp tsl linkage donation semaphore acquire sequencing
naive gridwise xdl cshuffle kentry thrust ptx cnn coop batchnorm basic bottleneck
tesla geforce quadro rtx gtx dgx dgxs sxm nvl radeon instinct
""".split()  # noqa: SIM905


def _python() -> Iterator[str]:
    """Of Python's own functions, as a trace with stacks names them."""
    yield from ("genexpr", "listcomp", "dictcomp", "setcomp", "decorate_context")
    for name in (
        "builtins",
        "collections.abc",
        "concurrent.futures",
        "contextlib",
        "functools",
        "importlib._bootstrap",
        "logging",
        "threading",
    ):
        for member in vars(importlib.import_module(name)).values():
            yield from (
                getattr(member, "__name__", ""),
                *(vars(member) if isinstance(member, type) else ()),
            )


def _registries() -> Iterator[str]:
    import jax
    import keras
    import tensorflow as tf
    import torch

    yield from dir(tf.raw_ops)
    for module in (
        keras.layers,
        keras.optimizers,
        keras.losses,
        keras.metrics,
        keras.callbacks,
        keras.applications,
        keras.ops,
        tf.data,
        tf.distribute,
    ):
        yield from dir(module)
    for module in (
        jax,
        jax.lax,
        jax.numpy,
        jax.nn,
        jax.nn.initializers,
        jax.random,
        jax.scipy.special,
        jax.numpy.linalg,
        jax.numpy.fft,
    ):
        yield from dir(module)
    yield from torch._C._dispatch_get_all_op_names()
    for module in (
        torch,
        torch.nn,
        torch.nn.functional,
        torch.nn.init,
        torch.optim,
        torch.distributed,
        torch.cuda,
        torch.utils.data,
        torch.Tensor,
    ):
        yield from dir(module)


def main() -> None:
    known = set(TARGET.read_text().split()) if TARGET.exists() else set()
    found = {
        word
        for name in [*_registries(), *_python(), *OF_LIBRARIES]
        for word in words(name)
        if re.fullmatch(r"[a-z]{3,}", word)
    }
    TARGET.write_text("\n".join(sorted(known | found)) + "\n")


if __name__ == "__main__":
    main()
