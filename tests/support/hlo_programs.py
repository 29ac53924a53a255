"""Small programs in XLA's own text, one op or one fusion each, and their bytes as XLA makes
them.
"""

from __future__ import annotations

import re

from tests.support.profiles import needed
from tests.support.xspace import chunk

COMPUTATIONS = """\
add_f { a = f32[] parameter(0)
 b = f32[] parameter(1)
 ROOT r = f32[] add(a,b) }
max2 { a = f32[] parameter(0)
 b = f32[] parameter(1)
 m = f32[] maximum(a,b)
 e = f32[] exponential(m)
 ROOT r = f32[] multiply(e,b) }
pair { a = f32[] parameter(0)
 b = s32[] parameter(1)
 c = f32[] parameter(2)
 d = s32[] parameter(3)
 x = f32[] add(a,c)
 y = s32[] add(b,d)
 ROOT r = (f32[],s32[]) tuple(x,y) }
ge { a = f32[] parameter(0)
 b = f32[] parameter(1)
 ROOT r = pred[] compare(a,b), direction=GE }
mapc { a = f32[] parameter(0)
 b = f32[] tanh(a)
 ROOT r = f32[] add(b,b) }
body { p = (s32[], f32[100]) parameter(0)
 i = s32[] get-tuple-element(p), index=0
 x = f32[100] get-tuple-element(p), index=1
 one = s32[] constant(1)
 j = s32[] add(i,one)
 y = f32[100] tanh(x)
 ROOT r = (s32[], f32[100]) tuple(j,y) }
cond { p = (s32[], f32[100]) parameter(0)
 i = s32[] get-tuple-element(p), index=0
 n = s32[] constant(10)
 ROOT r = pred[] compare(i,n), direction=LT }
br1 { p = f32[100] parameter(0)
 ROOT r = f32[100] tanh(p) }
br2 { p = f32[100] parameter(0)
 ROOT r = f32[100] add(p,p) }
asy { p = f32[100] parameter(0)
 ROOT r = f32[100] tanh(p) }
pge { a = f32[] parameter(0)
 b = f32[] parameter(1)
 c = s32[] parameter(2)
 d = s32[] parameter(3)
 ROOT r = pred[] compare(a,b), direction=GE }
pair2 { a = f32[] parameter(0)
 b = f32[] parameter(1)
 c = f32[] parameter(2)
 d = f32[] parameter(3)
 x = f32[] add(a,c)
 y = f32[] add(b,d)
 ROOT r = (f32[],f32[]) tuple(x,y) }
"""
# By name: the operands, and the op.
OPS = {
    "slice": ("a = f32[20,8]", "f32[10,4] slice(a), slice={[0:10],[2:6]}"),
    "dynslice": (
        "a = f32[20,8]; i = s32[]",
        "f32[10,4] dynamic-slice(a,i,i), dynamic_slice_sizes={10,4}",
    ),
    "dus": ("a = f32[20,8]; b = f32[10,4]; i = s32[]", "f32[20,8] dynamic-update-slice(a,b,i,i)"),
    "concat": ("a = f32[20,8]; b = f32[10,8]", "f32[30,8] concatenate(a,b), dimensions={0}"),
    "concat4": ("a = f32[20,8]; b = f32[10,8]", "f32[50,8] concatenate(a,b,b,b), dimensions={0}"),
    "transpose": ("a = f32[20,8]", "f32[8,20] transpose(a), dimensions={1,0}"),
    "reshape": ("a = f32[20,8]", "f32[160] reshape(a)"),
    "bitcast": ("a = f32[20,8]", "f32[160] bitcast(a)"),
    "broadcast": ("a = f32[20,8]", "f32[20,8,3] broadcast(a), dimensions={0,1}"),
    "pad": ("a = f32[20,8]; z = f32[]", "f32[22,8] pad(a,z), padding=1_1x0_0"),
    "reverse": ("a = f32[20,8]", "f32[20,8] reverse(a), dimensions={0}"),
    "reduce": ("a = f32[20,8]; z = f32[]", "f32[8] reduce(a,z), dimensions={0}, to_apply=add_f"),
    "reducec": ("a = f32[20,8]; z = f32[]", "f32[8] reduce(a,z), dimensions={0}, to_apply=max2"),
    "reduce2": (
        "a = f32[20,8]; b = s32[20,8]; z = f32[]; i = s32[]",
        "(f32[8],s32[8]) reduce(a,b,z,i), dimensions={0}, to_apply=pair",
    ),
    "rwindow": (
        "a = f32[20,8]; z = f32[]",
        "f32[10,8] reduce-window(a,z), window={size=2x1 stride=2x1}, to_apply=add_f",
    ),
    "rwindowp": (
        "a = f32[20,8]; z = f32[]",
        "f32[20,8] reduce-window(a,z), window={size=3x3 pad=1_1x1_1}, to_apply=add_f",
    ),
    "sas": (
        "a = f32[20,8]; b = f32[10,8]; z = f32[]",
        "f32[20,8] select-and-scatter(a,b,z), window={size=2x1 stride=2x1}, select=ge, scatter=add_f",
    ),
    "map": ("a = f32[20]", "f32[20] map(a), dimensions={0}, to_apply=mapc"),
    "gather": (
        "a = f32[20,8]; i = s32[5,1]",
        "f32[5,8] gather(a,i), offset_dims={1}, collapsed_slice_dims={0}, start_index_map={0}, index_vector_dim=1, slice_sizes={1,8}",
    ),
    "scatter": (
        "a = f32[20,8]; i = s32[5,1]; u = f32[5,8]",
        "f32[20,8] scatter(a,i,u), update_window_dims={1}, inserted_window_dims={0}, scatter_dims_to_operand_dims={0}, index_vector_dim=1, to_apply=add_f",
    ),
    "sort": ("a = f32[20,8]", "f32[20,8] sort(a), dimensions={0}, to_apply=ge"),
    "fft": ("a = c64[20,8]", "c64[20,8] fft(a), fft_type=FFT, fft_length={8}"),
    "fft2": ("a = c64[20,8]", "c64[20,8] fft(a), fft_type=FFT, fft_length={20,8}"),
    "rfft": ("a = f32[20,8]", "c64[20,5] fft(a), fft_type=RFFT, fft_length={8}"),
    "cholesky": ("a = f32[2,8,8]", "f32[2,8,8] cholesky(a)"),
    "rng": ("z = f32[]", "f32[100] rng(z,z), distribution=rng_uniform"),
    "rngbits": ("s = u64[2]", "(u64[2],u32[100]) rng-bit-generator(s), algorithm=rng_three_fry"),
    "dotbatch": (
        "a = f32[4,20,8]; b = f32[4,8,6]",
        "f32[4,20,6] dot(a,b), lhs_batch_dims={0}, rhs_batch_dims={0}, lhs_contracting_dims={2}, rhs_contracting_dims={1}",
    ),
    "doti8": (
        "a = s8[20,8]; b = s8[8,6]",
        "s32[20,6] dot(a,b), lhs_contracting_dims={1}, rhs_contracting_dims={0}",
    ),
    "dotf8": (
        "a = f8e4m3fn[20,8]; b = f8e4m3fn[8,6]",
        "f32[20,6] dot(a,b), lhs_contracting_dims={1}, rhs_contracting_dims={0}",
    ),
    "dotf64": (
        "a = f64[20,8]; b = f64[8,6]",
        "f64[20,6] dot(a,b), lhs_contracting_dims={1}, rhs_contracting_dims={0}",
    ),
    "dotc64": (
        "a = c64[20,8]; b = c64[8,6]",
        "c64[20,6] dot(a,b), lhs_contracting_dims={1}, rhs_contracting_dims={0}",
    ),
    "dots4": (
        "a = s4[20,8]; b = s4[8,6]",
        "s32[20,6] dot(a,b), lhs_contracting_dims={1}, rhs_contracting_dims={0}",
    ),
    "conv": (
        "a = f32[2,16,16,3]; b = f32[3,3,3,4]",
        "f32[2,16,16,4] convolution(a,b), window={size=3x3 pad=1_1x1_1}, dim_labels=b01f_01io->b01f",
    ),
    "convstr": (
        "a = f32[2,16,16,3]; b = f32[3,3,3,4]",
        "f32[2,8,8,4] convolution(a,b), window={size=3x3 stride=2x2 pad=0_1x0_1}, dim_labels=b01f_01io->b01f",
    ),
    "convdil": (
        "a = f32[2,16,16,3]; b = f32[3,3,3,4]",
        "f32[2,31,31,4] convolution(a,b), window={size=3x3 pad=1_1x1_1 lhs_dilate=2x2}, dim_labels=b01f_01io->b01f",
    ),
    "convrdil": (
        "a = f32[2,16,16,3]; b = f32[3,3,3,4]",
        "f32[2,12,12,4] convolution(a,b), window={size=3x3 rhs_dilate=2x2}, dim_labels=b01f_01io->b01f",
    ),
    "convgrp": (
        "a = f32[2,16,16,3]; b = f32[3,3,1,6]",
        "f32[2,16,16,6] convolution(a,b), window={size=3x3 pad=1_1x1_1}, dim_labels=b01f_01io->b01f, feature_group_count=3",
    ),
    "convbg": (
        "a = f32[2,16,16,3]; b = f32[3,3,3,4]",
        "f32[1,14,14,4] convolution(a,b), window={size=3x3}, dim_labels=b01f_01io->b01f, batch_group_count=2",
    ),
    "while": ("t = (s32[], f32[100])", "(s32[], f32[100]) while(t), condition=cond, body=body"),
    "cond": (
        "p = pred[]; a = f32[100]",
        "f32[100] conditional(p,a,a), true_computation=br1, false_computation=br2",
    ),
    "call": ("a = f32[100]", "f32[100] call(a), to_apply=br1"),
    "tuple": ("a = f32[100]; b = f32[20]", "(f32[100],f32[20]) tuple(a,b)"),
    "gte": ("t = (s32[], f32[100])", "f32[100] get-tuple-element(t), index=1"),
    "allreduce": ("a = f32[100]", "f32[100] all-reduce(a), to_apply=add_f"),
    "allgather": ("a = f32[100]", "f32[200] all-gather(a), dimensions={0}, replica_groups={{0,1}}"),
    "redscat": (
        "a = f32[100]",
        "f32[50] reduce-scatter(a), dimensions={0}, replica_groups={{0,1}}, to_apply=add_f",
    ),
    "a2a": ("a = f32[100]", "f32[100] all-to-all(a), dimensions={0}, replica_groups={{0,1}}"),
    "cperm": ("a = f32[100]", "f32[100] collective-permute(a), source_target_pairs={{0,1}}"),
    "ccall": ("a = f32[100]", 'f32[100] custom-call(a), custom_call_target="foo"'),
    "bnorm": (
        "a = f32[20,8]; s = f32[8]",
        "f32[20,8] batch-norm-inference(a,s,s,s,s), epsilon=0.1, feature_index=1",
    ),
    "copy": ("a = f32[20,8]", "f32[20,8] copy(a)"),
    "optb": ("a = f32[20,8]", "f32[20,8] opt-barrier(a)"),
    "partid": ("", "u32[] partition-id()"),
    "setdim": ("a = f32[20,8]", "s32[] get-dimension-size(a), dimensions={0}"),
    "topk": ("a = f32[20,8]", "(f32[20,2],s32[20,2]) topk(a), k=2, largest=true"),
    "clampb": ("a = f32[20,8]; z = f32[]", "f32[20,8] clamp(z,a,z)"),
    "copystart": ("a = f32[20,8]", "(f32[20,8],f32[20,8],u32[]) copy-start(a)"),
    "dyn2": (
        "a = f32[20,8]; i = s64[]; j = s32[]",
        "f32[10,4] dynamic-slice(a,i,j), dynamic_slice_sizes={10,4}",
    ),
    "concatd1": ("a = f32[20,8]; b = f32[20,7]", "f32[20,15] concatenate(a,b), dimensions={1}"),
    "concatd1_32": (
        "a = f32[20,16]; b = f32[20,16]",
        "f32[20,32] concatenate(a,b), dimensions={1}",
    ),
    "irfft": ("a = c64[20,5]", "f32[20,8] fft(a), fft_type=IRFFT, fft_length={8}"),
    "sort2": (
        "a = f32[20,8]; b = s32[20,8]",
        "(f32[20,8],s32[20,8]) sort(a,b), dimensions={1}, to_apply=pge",
    ),
    "ag4": ("a = f32[100]", "f32[400] all-gather(a), dimensions={0}, replica_groups={{0,1,2,3}}"),
    "rs4": (
        "a = f32[100]",
        "f32[25] reduce-scatter(a), dimensions={0}, replica_groups={{0,1,2,3}}, to_apply=add_f",
    ),
    "ar4": ("a = f32[100]", "f32[100] all-reduce(a), replica_groups={{0,1,2,3}}, to_apply=add_f"),
    "ar4c": ("a = f32[100]", "f32[100] all-reduce(a), replica_groups={{0,1,2,3}}, to_apply=max2"),
    "ar4t": (
        "a = f32[100]; b = f32[20]",
        "(f32[100],f32[20]) all-reduce(a,b), replica_groups={{0,1,2,3}}, to_apply=add_f",
    ),
    "ars": (
        "a = f32[100]",
        "f32[100] all-reduce-start(a), replica_groups={{0,1,2,3}}, to_apply=add_f",
    ),
    "ags": (
        "a = f32[100]",
        "(f32[100],f32[400]) all-gather-start(a), dimensions={0}, replica_groups={{0,1,2,3}}",
    ),
    "agd": (
        "a = f32[100]; x = (f32[100],f32[400]) all-gather-start(a), dimensions={0}, replica_groups={{0,1,2,3}}",
        "f32[400] all-gather-done(x)",
    ),
    "cps": (
        "a = f32[100]",
        "(f32[100],f32[100]) collective-permute-start(a), source_target_pairs={{0,1}}",
    ),
    "a2a4": ("a = f32[100]", "f32[100] all-to-all(a), dimensions={0}, replica_groups={{0,1,2,3}}"),
    "a2at": ("a = f32[25]", "(f32[25],f32[25]) all-to-all(a,a), replica_groups={{0,1}}"),
    "convi8": (
        "a = s8[2,16,16,3]; b = s8[3,3,3,4]",
        "s32[2,16,16,4] convolution(a,b), window={size=3x3 pad=1_1x1_1}, dim_labels=b01f_01io->b01f",
    ),
    "conv1": (
        "a = f32[2,16,3]; b = f32[3,3,4]",
        "f32[2,16,4] convolution(a,b), window={size=3 pad=1_1 rhs_reversal=1}, dim_labels=b0f_0io->b0f",
    ),
    "conv0": ("a = f32[2,3]; b = f32[3,4]", "f32[2,4] convolution(a,b), dim_labels=bf_io->bf"),
    "bnt": (
        "a = f32[20,8]; s = f32[8]",
        "(f32[20,8],f32[8],f32[8]) batch-norm-training(a,s,s), epsilon=0.1, feature_index=1",
    ),
    "selb": ("p = pred[20,8]; a = f32[20,8]", "f32[20,8] select(p,a,a)"),
    "scat2": (
        "a = f32[20,8]; i = s32[5,1]; u = f32[5,8]",
        "(f32[20,8],f32[20,8]) scatter(a,a,i,u,u), update_window_dims={1}, inserted_window_dims={0}, scatter_dims_to_operand_dims={0}, index_vector_dim=1, to_apply=pair2",
    ),
    "dotbf": (
        "a = bf16[20,8]; b = bf16[8,6]",
        "bf16[20,6] dot(a,b), lhs_contracting_dims={1}, rhs_contracting_dims={0}",
    ),
    "adds8": ("a = s8[20]", "s8[20] add(a,a)"),
    "addi4": ("a = s4[20]", "s4[20] add(a,a)"),
    "whilek": (
        "t = (s32[], f32[100])",
        '(s32[], f32[100]) while(t), condition=cond, body=body, backend_config={"known_trip_count":{"n":"10"}}',
    ),
    "gemm1": (
        "a = bf16[20,8]; b = bf16[8,6]",
        'bf16[20,6] custom-call(a,b), custom_call_target="__cublas$lt$matmul", backend_config={"gemm_backend_config":{"alpha_real":1,"beta":0,"dot_dimension_numbers":{"lhs_contracting_dimensions":["1"],"rhs_contracting_dimensions":["0"],"lhs_batch_dimensions":[],"rhs_batch_dimensions":[]}}}',
    ),
    "triton": (
        "a = bf16[20,8]; b = bf16[8,6]",
        'bf16[20,6] custom-call(a,b), custom_call_target="__triton$xx"',
    ),
    "ccconv": (
        "a = f32[2,16,16,3]; b = f32[3,3,3,4]",
        '(f32[2,16,16,4],u8[0]) custom-call(a,b), window={size=3x3 pad=1_1x1_1}, dim_labels=b01f_01io->b01f, custom_call_target="__cudnn$convForward"',
    ),
    "ccconvbi": (
        "a = f32[2,16,16,4]; b = f32[3,3,3,4]",
        '(f32[2,16,16,3],u8[0]) custom-call(a,b), window={size=3x3 pad=1_1x1_1}, dim_labels=b01f_01io->b01f, custom_call_target="__cudnn$convBackwardInput"',
    ),
    "ccconvbf": (
        "a = f32[2,16,16,3]; b = f32[2,16,16,4]",
        '(f32[3,3,3,4],u8[0]) custom-call(a,b), window={size=3x3 pad=1_1x1_1}, dim_labels=b01f_01io->b01f, custom_call_target="__cudnn$convBackwardFilter"',
    ),
    "ccconvba": (
        "a = f32[2,16,16,3]; b = f32[3,3,3,4]; c = f32[4]",
        '(f32[2,16,16,4],u8[0]) custom-call(a,b,c), window={size=3x3 pad=1_1x1_1}, dim_labels=b01f_01io->b01f, custom_call_target="__cudnn$convBiasActivationForward"',
    ),
    "conv8": (
        "a = s8[2,16,16,3]; b = s8[3,3,3,4]",
        '(f32[2,16,16,4],u8[0]) custom-call(a,b), window={size=3x3 pad=1_1x1_1}, dim_labels=b01f_01io->b01f, custom_call_target="__cudnn$convForward"',
    ),
    "astart": ("a = f32[100]", "((f32[100]), f32[100], u32[]) async-start(a), calls=asy"),
    "infeed": ("k = token[] after-all()", "((f32[3],f32[4]), token[]) infeed(k)"),
    "outfeed": (
        "a = f32[20,8]; k = token[] after-all()",
        "token[] outfeed(a,k), outfeed_shape=f32[20,8]",
    ),
    "send": (
        "a = f32[20]; k = token[] after-all()",
        "(f32[20], u32[], token[]) send(a,k), channel_id=1",
    ),
    "domain": (
        "a = f32[20]",
        'f32[20] domain(a), domain={kind="sharding", entry={maximal device=0}, exit={maximal device=1}}',
    ),
    "stf": ("a = f32[160]; i = s32[]", "f32[20,8] dynamic-reshape(a,i,i)"),
    "rngget": ("", "u64[2] rng-get-and-update-state(), delta=1"),
    "cs": ("a = f32[20]; i = s32[]", "f32[<=20] set-dimension-size(a,i), dimensions={0}"),
}
# By name: the operands, the ops inside, the shape of what comes out, and the kind.
FUSIONS = {
    "bc": (
        "a = f32[20]; c = f32[20,8]",
        "x = f32[20] tanh(a); b = f32[20,8] broadcast(x), dimensions={0}; ROOT r = f32[20,8] add(b,c)",
        "f32[20,8]",
        "kLoop",
    ),
    "two": (
        "a = f32[20]",
        "x = f32[20] tanh(a); y = f32[20] exponential(x); ROOT r = f32[20] add(x,y)",
        "f32[20]",
        "kLoop",
    ),
    "slice": (
        "a = f32[20]",
        "x = f32[20] tanh(a); ROOT r = f32[5] slice(x), slice={[0:5]}",
        "f32[5]",
        "kLoop",
    ),
    "slice2": (
        "a = f32[20]",
        "x = f32[20] tanh(a); p = f32[5] slice(x), slice={[0:5]}; q = f32[5] slice(x), slice={[5:10]}; ROOT r = f32[5] add(p,q)",
        "f32[5]",
        "kLoop",
    ),
    "dyn": (
        "a = f32[20]; i = s32[]",
        "x = f32[20] tanh(a); ROOT r = f32[5] dynamic-slice(x,i), dynamic_slice_sizes={5}",
        "f32[5]",
        "kLoop",
    ),
    "transp": (
        "a = f32[20,8]; c = f32[8,20]",
        "x = f32[20,8] tanh(a); y = f32[8,20] transpose(x), dimensions={1,0}; ROOT r = f32[8,20] add(y,c)",
        "f32[8,20]",
        "kLoop",
    ),
    "reduce": (
        "a = f32[20,8]",
        "x = f32[20,8] tanh(a); z = f32[] constant(0); ROOT r = f32[8] reduce(x,z), dimensions={0}, to_apply=add_f",
        "f32[8]",
        "kInput",
    ),
    "red2": (
        "a = f32[20,8]",
        "x = f32[20,8] tanh(a); z = f32[] constant(0); r1 = f32[8] reduce(x,z), dimensions={0}, to_apply=add_f; y = f32[20,8] add(x,x); ROOT r = (f32[8],f32[20,8]) tuple(r1,y)",
        "(f32[8],f32[20,8])",
        "kInput",
    ),
    "redbc": (
        "a = f32[20,8]",
        "x = f32[20,8] tanh(a); z = f32[] constant(0); r1 = f32[8] reduce(x,z), dimensions={0}, to_apply=add_f; b = f32[20,8] broadcast(r1), dimensions={1}; ROOT r = f32[20,8] subtract(x,b)",
        "f32[20,8]",
        "kLoop",
    ),
    "dus": (
        "a = f32[20]; b = f32[5]; i = s32[]",
        "x = f32[5] tanh(b); ROOT r = f32[20] dynamic-update-slice(a,x,i)",
        "f32[20]",
        "kLoop",
    ),
    "dust": (
        "a = f32[20]; b = f32[5]; i = s32[]",
        "x = f32[5] tanh(b); d = f32[20] dynamic-update-slice(a,x,i); ROOT r = (f32[20],f32[5]) tuple(d,x)",
        "(f32[20],f32[5])",
        "kLoop",
    ),
    "dusb": (
        "a = f32[20]; b = f32[5]; i = s32[]",
        "x = f32[5] tanh(b); d = f32[20] dynamic-update-slice(a,x,i); ROOT r = f32[20] bitcast(d)",
        "f32[20]",
        "kLoop",
    ),
    "gather": (
        "a = f32[20,8]; i = s32[5,1]",
        "x = f32[20,8] tanh(a); ROOT r = f32[5,8] gather(x,i), offset_dims={1}, collapsed_slice_dims={0}, start_index_map={0}, index_vector_dim=1, slice_sizes={1,8}",
        "f32[5,8]",
        "kLoop",
    ),
    "concat": (
        "a = f32[20]; b = f32[10]",
        "x = f32[20] tanh(a); y = f32[10] exponential(b); ROOT r = f32[30] concatenate(x,y), dimensions={0}",
        "f32[30]",
        "kLoop",
    ),
    "pad": (
        "a = f32[20]",
        "x = f32[20] tanh(a); z = f32[] constant(0); ROOT r = f32[30] pad(x,z), padding=5_5",
        "f32[30]",
        "kLoop",
    ),
    "dot": (
        "a = f32[20,8]; b = f32[8,6]",
        "x = f32[20,8] tanh(a); y = f32[8,6] add(b,b); d = f32[20,6] dot(x,y), lhs_contracting_dims={1}, rhs_contracting_dims={0}; ROOT r = bf16[20,6] convert(d)",
        "bf16[20,6]",
        "kCustom",
    ),
    "doti8": (
        "a = s8[20,8]; b = s8[8,6]",
        "d = s32[20,6] dot(a,b), lhs_contracting_dims={1}, rhs_contracting_dims={0}; ROOT r = bf16[20,6] convert(d)",
        "bf16[20,6]",
        "kCustom",
    ),
    "bcs": (
        "a = f32[20]; s = f32[]",
        "z = f32[] constant(3); y = f32[] tanh(s); b = f32[20] broadcast(y), dimensions={}; c = f32[20] broadcast(z), dimensions={}; t = f32[20] multiply(b,c); ROOT r = f32[20] add(t,a)",
        "f32[20]",
        "kLoop",
    ),
    "reshape": (
        "a = f32[20,8]",
        "x = f32[20,8] tanh(a); y = f32[160] reshape(x); ROOT r = f32[160] add(y,y)",
        "f32[160]",
        "kLoop",
    ),
    "iota": (
        "a = f32[20,8]",
        "x = s32[20,8] iota(), iota_dimension=0; y = f32[20,8] convert(x); ROOT r = f32[20,8] add(y,a)",
        "f32[20,8]",
        "kLoop",
    ),
    "unused": (
        "a = f32[20,8]; b = f32[20,8]",
        "x = f32[20,8] tanh(a); ROOT r = f32[20,8] add(x,a)",
        "f32[20,8]",
        "kLoop",
    ),
    "rw": (
        "a = f32[20,8]",
        "x = f32[20,8] tanh(a); z = f32[] constant(0); ROOT r = f32[20,8] reduce-window(x,z), window={size=3x3 pad=1_1x1_1}, to_apply=add_f",
        "f32[20,8]",
        "kLoop",
    ),
    "scatter": (
        "a = f32[20,8]; i = s32[5,1]; u = f32[5,8]",
        "x = f32[5,8] tanh(u); ROOT r = f32[20,8] scatter(a,i,x), update_window_dims={1}, inserted_window_dims={0}, scatter_dims_to_operand_dims={0}, index_vector_dim=1, to_apply=add_f",
        "f32[20,8]",
        "kInput",
    ),
    "multi": (
        "a = f32[20]",
        "x = f32[20] tanh(a); y = f32[20] add(a,a); ROOT r = (f32[20],f32[20]) tuple(x,y)",
        "(f32[20],f32[20])",
        "kLoop",
    ),
    "gte": (
        "t = (f32[20],f32[9])",
        "x = f32[20] get-tuple-element(t), index=0; ROOT r = f32[20] add(x,x)",
        "f32[20]",
        "kLoop",
    ),
    "slc": (
        "a = f32[20]",
        "x = f32[20] tanh(a); p = f32[20] negate(x); q = f32[5] slice(p), slice={[0:5]}; b = f32[5,8] broadcast(q), dimensions={0}; ROOT r = f32[5,8] add(b,b)",
        "f32[5,8]",
        "kLoop",
    ),
    "sort": (
        "a = f32[20,8]",
        "x = f32[20,8] tanh(a); ROOT r = f32[20,8] sort(x), dimensions={0}, to_apply=ge",
        "f32[20,8]",
        "kLoop",
    ),
    "inplacebc": (
        "a = f32[20]; i = s32[]",
        "z = f32[] constant(0); b = f32[5] broadcast(z), dimensions={}; ROOT r = f32[20] dynamic-update-slice(a,b,i)",
        "f32[20]",
        "kLoop",
    ),
    "dyntwo": (
        "a = f32[20]; i = s32[]; j = s32[]",
        "x = f32[5] dynamic-slice(a,i), dynamic_slice_sizes={5}; y = f32[5] dynamic-slice(a,j), dynamic_slice_sizes={5}; ROOT r = f32[5] add(x,y)",
        "f32[5]",
        "kLoop",
    ),
    "redinit": (
        "a = f32[20,8]; z = f32[]",
        "y = f32[] tanh(z); ROOT r = f32[8] reduce(a,y), dimensions={0}, to_apply=add_f",
        "f32[8]",
        "kInput",
    ),
    "rwinit": (
        "a = f32[20,8]; z = f32[]",
        "y = f32[] tanh(z); ROOT r = f32[10,8] reduce-window(a,y), window={size=2x1 stride=2x1}, to_apply=add_f",
        "f32[10,8]",
        "kLoop",
    ),
    "padinit": (
        "a = f32[20]; z = f32[]",
        "y = f32[] tanh(z); ROOT r = f32[30] pad(a,y), padding=5_5",
        "f32[30]",
        "kLoop",
    ),
    "index": (
        "a = f32[20]; i = s32[]",
        "j = s32[] add(i,i); ROOT r = f32[5] dynamic-slice(a,j), dynamic_slice_sizes={5}",
        "f32[5]",
        "kLoop",
    ),
    "indices": (
        "a = f32[20,8]; i = s32[5,1]",
        (
            "j = s32[5,1] add(i,i); ROOT r = f32[5,8] gather(a,j), offset_dims={1}, collapsed_slice_dims={0}, start_index_map={0}, "
            "index_vector_dim=1, slice_sizes={1,8}"
        ),
        "f32[5,8]",
        "kLoop",
    ),
}
TYPES = [
    "pred",
    "s4",
    "s8",
    "s16",
    "s32",
    "s64",
    "u4",
    "u8",
    "u16",
    "u32",
    "u64",
    "f16",
    "bf16",
    "f32",
    "f64",
    "c64",
    "c128",
    "f8e5m2",
    "f8e4m3fn",
]
UNARY = [
    "abs",
    "cbrt",
    "ceil",
    "convert",
    "cosine",
    "erf",
    "exponential",
    "exponential-minus-one",
    "floor",
    "is-finite",
    "log",
    "log-plus-one",
    "logistic",
    "negate",
    "not",
    "popcnt",
    "count-leading-zeros",
    "real",
    "imag",
    "round-nearest-afz",
    "round-nearest-even",
    "rsqrt",
    "sign",
    "sine",
    "sqrt",
    "tan",
    "tanh",
    "copy",
    "bitcast-convert",
]
BINARY = [
    "add",
    "subtract",
    "multiply",
    "divide",
    "remainder",
    "maximum",
    "minimum",
    "power",
    "and",
    "or",
    "xor",
    "shift-left",
    "shift-right-arithmetic",
    "shift-right-logical",
    "atan2",
    "complex",
    "compare",
]


def _parameters(operands):
    """The operands as instructions, those that are made of others behind the parameters."""
    lines = [line.strip() for line in operands.split(";") if line.strip()]
    made = [line for line in lines if re.search(r"[a-z]\(", line)]
    given = [line for line in lines if line not in made]
    return [f"{line} parameter({number})" for number, line in enumerate(given)] + made


def single(operands, op):
    return _module([*_parameters(operands), f"ROOT r = {op}"])


def fusion(operands, inside, out, kind):
    names = [line.split(" = ")[0] for line in _parameters(operands)]
    outer = [
        line.replace(f"{name} = ", f"e{name} = ", 1)
        for name, line in zip(names, _parameters(operands), strict=True)
    ]
    made = f"ROOT r = {out} fusion({', '.join('e' + name for name in names)}), kind={kind}, calls=fused"
    body = [line.strip() for line in inside.split(";")]
    return _module(
        [*outer, made], "fused {\n" + "\n".join([*_parameters(operands), *body]) + "\n}\n"
    )


def elementwise():
    """Each elementwise op of each type."""
    half = {"c64": "f32", "c128": "f64"}
    for kind in TYPES:
        for op in UNARY:
            out = (
                "pred"
                if op == "is-finite"
                else half.get(kind, kind)
                if op in ("real", "imag", "abs")
                else kind
            )
            yield f"{op} {kind}", single(f"a = {kind}[100]", f"{out}[100] {op}(a)")
        for op in BINARY:
            out = (
                "pred"
                if op == "compare"
                else {"f32": "c64", "f64": "c128"}.get(kind, kind)
                if op == "complex"
                else kind
            )
            more = ", direction=LT" if op == "compare" else ""
            yield (
                f"{op} {kind}",
                single(f"a = {kind}[100]; b = {kind}[100]", f"{out}[100] {op}(a, b){more}"),
            )
        yield (
            f"select {kind}",
            single(f"p = pred[100]; a = {kind}[100]", f"{kind}[100] select(p, a, a)"),
        )
        yield f"clamp {kind}", single(f"a = {kind}[100]", f"{kind}[100] clamp(a, a, a)")
        yield f"iota {kind}", single("", f"{kind}[100] iota(), iota_dimension=0")
        yield (
            f"reduce-precision {kind}",
            single(
                f"a = {kind}[100]",
                f"{kind}[100] reduce-precision(a), exponent_bits=5, mantissa_bits=3",
            ),
        )


def _module(lines, before=""):
    return "HloModule m\n" + COMPUTATIONS + before + "ENTRY entry {\n" + "\n".join(lines) + "\n}"


def program(text):
    """The bytes of a program, by the parser that comes with JAX."""
    try:
        from jaxlib import _hlo
    except ImportError:
        needed("jaxlib has no parser of XLA's text")
    return chunk(1, _hlo.hlo_module_from_text(text).as_serialized_hlo_module_proto())
