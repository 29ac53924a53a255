"""What is told of most names by how they begin is what the patterns alone say."""

from __future__ import annotations

import re

import pytest

from nbprof.activity import activity as act
from nbprof.activity import copies
from nbprof.dialects import torchnames

NAMES = [
    "", "aten::mm", "aten::mm_out::x", "c10d::allreduce_", "autograd::engine::evaluate_function: MmBackward0", "torch::autograd::AccumulateGrad",
    "torch::jit::run", "triton_poi_fused_add_0", "triton_x::y", "triton_kernelBackward", "MmBackward0", "AddBackward", "record_param_comms",
    "::odd", "a b::c", "größe::op", "9x::y", "_C::gemm", "enumerate(DataLoader)#_SingleProcessDataLoaderIter.__next__", "enumerate(x)#",
    act.NEXT_ITEM, f"{act.NEXT_ITEM} more", "cudaLaunchKernel", "cuLaunchKernelEx", "hipExtModuleLaunchKernel", "cudaMemcpyAsync", "cudaStreamSynchronize",
    "urEnqueueKernelLaunch", "zeCommandListAppendMemoryCopy", "aclrtMemcpyAsync", "LaunchKernel", "launchKernel", "cudaGraphLaunch",
    "Memcpy HtoD (Pageable -> Device)", "MEMCPY DtoH", "memset (Device)", "memory", "ncclDevKernel_AllReduce_Sum_f32_RING_LL", "rcclKernel",
    "oneccl_x", "void all_reduce_two", "allreduce_x", "my_multimem_all_reduce", "nvshmem_put", "deep_ep::dispatch", "reduce_kernel",
    "vectorized_elementwise", "entire_frame_compile (dynamo_timed)", "AOTDispatcher.joint", "_compile.compile_inner", "convert_frame", "cu", "ze",
]  # fmt: skip


@pytest.mark.parametrize("name", NAMES)
def test_the_patterns_say_the_same(name):
    assert torchnames.is_input(name) == bool(torchnames.INPUT.match(name))
    assert torchnames.call_kind(name) == next(
        (kind for kind, p in torchnames._CALLS.items() if p.match(name)), torchnames.OTHER_CALL
    )
    assert torchnames.transfer_kind(name) == next(
        (kind for p, kind in copies.KINDS if p.match(name.lower())), "other"
    )
    assert torchnames.is_collective(name) == bool(torchnames._COLLECTIVE.search(name))


@pytest.mark.parametrize("name", NAMES)
def test_families_of_ops(name):
    space, colons, _ = name.partition("::")
    if torchnames.LOADER.match(name):
        family = "DataLoader"
    elif name == act.NEXT_ITEM:
        family = "iterator"
    elif torchnames._AUTOGRAD.match(name):
        family = "autograd"
    elif name.startswith("triton_"):
        family = "triton"
    elif name == "record_param_comms":
        family = "c10d"
    else:
        family = space if colons and re.fullmatch(r"\w+", space) else "function"
    assert torchnames.op_type(name) == family
