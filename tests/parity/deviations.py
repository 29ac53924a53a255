"""Every figure in which nbprof differs from a peer on purpose, with the reason and the test that
holds ours.

Parity tests compare all columns but these. The docs show this table, so a reason is written for a
person who compares two tools.
"""

from __future__ import annotations

from tests.parity.peer import GUIDE, NAMES, XPROF, Deviation

_RTX = ("tf-gpu/rtx5000-cnn-batch8", "tf-gpu/rtx5000-cnn-batch64", "tf-gpu/rtx5000-cnn-batch512")
_OLD_GPU = (*_RTX, "tf-gpu/t4-one-step", "tf-gpu/v100x8-collectives")
_UNMARKED = ("jax/mi300-jax_conv_minimal_08", "jax/tpu-v6e-inference")
_BY_PROGRAM = (
    "JAX programs need not mark steps, and XProf then has none. nbprof takes the runs of the compiled program with the "
    "most time as steps, and says so; `p.steps.as_xprof()` stays empty."
)

_UNIT = (
    "Where nothing marks steps, XProf knows nothing of them. nbprof gives its figures per iteration of what repeats, or of the whole "
    "recording, and says so; `p.steps.as_xprof()` stays empty."
)
_BY_UNIT = "dialects/test_units.py::test_a_recording_in_which_nothing_repeats_is_the_unit"
UNITS = [
    *(
        Deviation("overview_page", "diagnostics", XPROF, (name,), _UNIT, _BY_UNIT)
        for name in (
            "tf-cpu/prefetch-example",
            "jax/gtx1080ti-reactant",
            "jax/mi300-jax08_attention",
        )
    ),
    Deviation(
        "overview_page",
        "compute_16bit_percent",
        XPROF,
        ("jax/mi300-jax08_attention",),
        _UNIT,
        _BY_UNIT,
    ),
    Deviation(
        "input_pipeline_analyzer", "level", XPROF, ("tf-cpu/prefetch-example",), _UNIT, _BY_UNIT
    ),
    Deviation(
        "input_pipeline_analyzer",
        "input_percent",
        GUIDE,
        ("tf-cpu/prefetch-example",),
        _UNIT,
        _BY_UNIT,
    ),
]

KERNELS = [
    Deviation(
        "kernel_stats",
        "op",
        XPROF,
        (*_OLD_GPU, "jax/mi300-jax08_attention"),
        "XProf finds no op in files of TensorFlow 2.3/2.4, which state it in `level 0`; and if a compiled program names"
        " no op for an HLO instruction, XProf shows nothing, nbprof the instruction's own name.",
        "parity/test_kernels.py::test_the_frame_is_the_guides_as_far_as_it_could_read",
    ),
    Deviation(
        "kernel_stats",
        "op_tensor_core_eligible",
        XPROF,
        (*_OLD_GPU, "jax/mi300-jax08_attention"),
        "Without an op, XProf takes no kernel as eligible. With one, it only checks the end of the name: it misses "
        "`dense/MatMul_1`, and `conv2d/Relu` of type `_FusedConv2D`, which are a matrix product and a convolution.",
        "parity/test_kernels.py::test_eligible_ops_that_have_another_name",
    ),
    Deviation(
        "kernel_stats",
        "uses_tensor_core",
        XPROF,
        _OLD_GPU,
        "XProf applies its list of names only if the file states the vendor, which files of TensorFlow 2.3/2.4 do not.",
        "parity/test_kernels.py::test_turing_kernels_of_the_884_shape_use_tensor_cores",
    ),
    Deviation(
        "kernel_stats",
        "static_shared_bytes",
        XPROF,
        (*_OLD_GPU, "jax/mi300-jax08_attention", "jax/mi300-jax_conv_minimal_08"),
        "XProf does not read `shm` (TensorFlow 2.3/2.4) and `group_mem` (AMD), and shows 0.",
        "parity/test_kernels.py::test_shared_memory_of_old_and_amd_files_is_read",
    ),
    Deviation(
        "kernel_stats",
        "occupancy_percent",
        XPROF,
        _OLD_GPU,
        "If none was recorded, XProf shows 0; nbprof computes it from the launch shape and the device, and says so.",
        "analysis/test_occupancy.py::test_old_files_show_an_occupancy_and_amd_none",
    ),
    Deviation(
        "kernel_stats",
        "op_tensor_core_eligible",
        GUIDE,
        (*_RTX, "tf-gpu/t4-one-step"),
        "TensorFlow 2.3/2.4 checked only the end of an op's name: it missed `dense/MatMul_1`, and convolutions fused into `conv2d/Relu`.",
        "parity/test_kernels.py::test_eligible_ops_that_have_another_name",
    ),
    Deviation(
        "kernel_stats",
        "uses_tensor_core",
        GUIDE,
        _RTX[1:],
        "TensorFlow 2.3 did not know Turing's kernels of shape 8x8x4 (`turing_…s884gemm…`).",
        "parity/test_kernels.py::test_turing_kernels_of_the_884_shape_use_tensor_cores",
    ),
    Deviation(
        "kernel_stats",
        "op",
        GUIDE,
        (_RTX[0], "tf-gpu/t4-one-step"),
        "TensorFlow 2.3/2.4 did not accept a `-` in op names (layout transposes), and appended the type to the name.",
        "parity/test_kernels.py::test_the_frame_is_the_guides_as_far_as_it_could_read",
    ),
    Deviation(
        "kernel_stats",
        "block, grid, registers",
        GUIDE,
        (*_RTX, "tf-gpu/t4-one-step"),
        "TensorFlow 2.3/2.4 could not parse the launch shapes that it had written itself, and shows 1,1,1 and 0.",
        "parity/test_kernels.py::test_as_xprof_has_its_rows_in_its_order",
    ),
]

INPUT: list[Deviation] = [
    Deviation(
        "input_pipeline_analyzer",
        "input_percent",
        GUIDE,
        (*_RTX, "tf-gpu/t4-one-step"),
        "TensorFlow 2.3/2.4 did not know its own `MemcpyH2D`, and counted copies to the device as compute. They are input.",
        "parity/test_input_pipeline.py::test_our_share_of_input_is_the_guides_and_the_copies_to_the_device",
    ),
    Deviation(
        "input_pipeline_analyzer",
        "input_percent",
        GUIDE,
        ("tf-cpu/prefetch-128-empty-gpu-plane",),
        "If a device was traced but ran nothing, the tool has no steps. The host marked them, so nbprof shows them.",
        "parity/test_input_pipeline.py::test_steps_of_the_host_count_where_the_device_ran_nothing",
    ),
    Deviation(
        "input_pipeline_analyzer",
        "level",
        XPROF,
        ("tf-gpu/rtx5000-cnn-batch64", "tf-gpu/rtx5000-cnn-batch512", "tf-gpu/v100x8-collectives"),
        "XProf leaves the host out of the steps of a GPU, so no step waits for input, and the whole wait is in 'All others'.",
        "parity/test_input_pipeline.py::test_the_host_waits_for_input_in_steps_of_a_gpu",
    ),
    Deviation(
        "input_pipeline_analyzer",
        "level",
        XPROF,
        ("tf-cpu/prefetch-128-empty-gpu-plane",),
        "If a device was traced but ran nothing, XProf has no steps. The host marked them, so nbprof shows them.",
        "parity/test_input_pipeline.py::test_steps_of_the_host_count_where_the_device_ran_nothing",
    ),
    Deviation(
        "input_pipeline_analyzer",
        "level",
        XPROF,
        ("jax/tpu-v6e-inference",),
        _BY_PROGRAM,
        "dialects/test_program_steps.py::test_runs_of_a_program_on_several_gpus_are_steps",
    ),
    Deviation(
        "input_pipeline_analyzer",
        "breakdown",
        XPROF,
        (),
        "XProf scales input work by the copies of a step even if the host enqueued nothing, which makes all of it 0. "
        "nbprof then shows the times as recorded.",
        "parity/test_input_pipeline.py::test_copies_on_the_device_alone_scale_nothing",
    ),
    Deviation(
        "input_pipeline_analyzer",
        "op",
        XPROF,
        (),
        "For XProf, a loop over a dataset inside a tf.function (`ReduceIterator::…`) is not an input op. It reads data like any other.",
        "parity/test_input_pipeline.py::test_loops_over_a_dataset_inside_a_function_are_input",
    ),
    Deviation(
        "tf_data_bottleneck_analysis",
        "self_ms",
        XPROF,
        (),
        "TensorFlow Profiler subtracts the overlap with each input from an iterator's time, which goes below zero if "
        "inputs ran in parallel. nbprof subtracts the time in which any of them ran. XProf 2.24 no longer offers the "
        "tool.",
        "parity/test_tf_data.py::test_time_in_which_several_inputs_ran_is_taken_off_once",
    ),
    Deviation(
        "tf_data_bottleneck_analysis",
        "pipeline",
        XPROF,
        (),
        "A loop over a dataset inside a tf.function is a pipeline too; TensorFlow Profiler reads only iterators that Python drives.",
        "parity/test_tf_data.py::test_a_loop_over_a_dataset_inside_a_function_is_read",
    ),
]

_JAX_GPU = ("jax/gtx1080ti-reactant", "jax/mi300-jax08_attention", "jax/mi300-jax_conv_minimal_08")
_JAX_AMD = ("jax/mi300-jax08_attention", "jax/mi300-jax_conv_minimal_08")
_TPU = "jax/tpu-v6e-inference"
_MISCOUNTED = (
    "What an op of a compiled program computes and moves is counted from its code, by XProf and by nbprof alike. XProf multiplies it by the "
    "number of the op's kernels that ran, which is twice too much of an op of two kernels, and has 0 of a matrix product by cuBLAS's older "
    "interface; nbprof multiplies it by how often the op ran, and counts those too. `p.ops.as_xprof()` has XProf's numbers."
)
_RUSHED = (
    "On a TPU an op that only begins a copy, or finds it done, has in XProf its bytes over its few nanoseconds, a million times what memory "
    "can do; nbprof gives it no rate."
)

OPS = [
    Deviation(
        "framework_op_stats",
        "device rows",
        XPROF,
        _OLD_GPU,
        "XProf finds no op in files of TensorFlow 2.3/2.4, which state it in `level 0`, and shows the device as idle. "
        "TensorFlow's own tables of that time have the ops, and nbprof agrees with them.",
        "parity/test_ops.py::test_the_frame_is_the_guides",
    ),
    Deviation(
        "framework_op_stats",
        "host rows",
        XPROF,
        (*_OLD_GPU, *_JAX_GPU, _TPU),
        "XProf counts events that only state the op they served as runs of it on the host: the allocator's, of 0 µs "
        "each, and on AMD the driver's calls, all as `XlaModule`. TensorFlow 2.3/2.4 did not, and neither does nbprof; "
        "they are in `p.memory` and in the trace. XProf also limits each side to 500 rows.",
        "parity/test_ops.py::test_calls_that_name_an_op_are_no_ops",
    ),
    *(
        Deviation(
            "framework_op_stats",
            column,
            XPROF,
            _JAX_AMD,
            _MISCOUNTED,
            "parity/test_ops.py::test_rates_of_a_gpu_are_xprofs_but_for_what_it_miscounts",
        )
        for column in ("flops_per_second", "bytes_per_second", "operational_intensity", "bound_by")
    ),
    *(
        Deviation(
            "framework_op_stats",
            column,
            XPROF,
            (_TPU,),
            _RUSHED,
            "parity/test_ops.py::test_a_tpus_rates_are_xprofs_where_the_bytes_were_moved",
        )
        for column in ("bytes_per_second", "bound_by")
    ),
    Deviation(
        "overview_page",
        "flop_rate_utilization_relative_to_roofline, memory_bw_utilization_relative_to_hw_limit",
        XPROF,
        (_TPU,),
        "XProf's overview has 0 if a program marks no steps; nbprof has the figures of XProf's own roofline, for the whole recording.",
        "parity/test_tpu_use.py::test_the_use_of_a_tpu_is_that_of_xprofs_roofline",
    ),
    Deviation(
        "overview_page",
        "device_duty_cycle_percent",
        XPROF,
        (_TPU,),
        "XProf has two times of the cores: its duty cycle (86.5) counts from a core's first event of any kind, as a program that waits for the "
        "other cores, its idle time (13.4) from the core's first op. nbprof counts both from the first op, so that they add up to 100: 86.6.",
        "parity/test_tpu_use.py::test_the_duty_cycle_of_xprof_begins_before_the_first_op",
    ),
    Deviation(
        "overview_page",
        "host_idle_time_percent",
        XPROF,
        (_TPU,),
        "No op ran on the host. XProf takes the allocator's events there as ops of 0 µs, so the host is 100 % idle; nbprof has None.",
        "parity/test_tpu_use.py::test_idle_time_of_a_tpu_is_xprofs",
    ),
    Deviation(
        "overview_page",
        "hbm_utilization_percent",
        XPROF,
        (_TPU,),
        "The file has no such counter. XProf shows 0, nbprof None.",
        "parity/test_tpu_use.py::test_counters_that_were_not_recorded_are_absent",
    ),
    Deviation(
        "overview_page",
        "flopRate",
        XPROF,
        _JAX_AMD,
        _MISCOUNTED,
        "parity/test_ops.py::test_rates_of_a_gpu_are_xprofs_but_for_what_it_miscounts",
    ),
    Deviation(
        "tensorflow_stats",
        "op",
        GUIDE,
        ("tf-gpu/rtx5000-cnn-batch8", "tf-gpu/t4-one-step"),
        "TensorFlow 2.3/2.4 did not accept a `-` in op names (layout transposes), and appended the type to the name.",
        "dialects/test_opnames.py::test_op_names",
    ),
    Deviation(
        "tensorflow_stats",
        "idle",
        GUIDE,
        ("tf-cpu/prefetch-example", "tf-cpu/prefetch-128-empty-gpu-plane"),
        "In TensorFlow 2.4, a GPU on which nothing ran was idle for 292 years: an overflow. Here it is idle for 0 µs, "
        "as nothing was recorded on it.",
        "parity/test_ops.py::test_the_frame_is_the_guides",
    ),
]

_AMD = ("jax/mi300-jax08_attention", "jax/mi300-jax_conv_minimal_08")

MEMORY = [
    Deviation(
        "memory_profile",
        "lifetime_peak_bytes",
        XPROF,
        ("tf-gpu/v100x8-collectives", "jax/tpu-v6e-inference"),
        "XProf takes the last value in the file, which can be below a peak in the profile itself; nbprof takes the largest.",
        "parity/test_memory.py::test_the_lifetime_peak_is_no_lower_than_a_peak_that_was_seen",
    ),
    Deviation(
        "memory_profile",
        "time_ms",
        XPROF,
        _AMD,
        "XProf measures event times from the start of their thread's line. If lines start at different times, events of"
        " several threads are in the wrong order; nbprof measures from the start of the profile.",
        "parity/test_memory.py::test_times_count_from_the_start_of_the_profile",
    ),
    Deviation(
        "memory_profile",
        "allocated_bytes",
        XPROF,
        ("jax/tpu-v6e-inference",),
        "Deallocations on a TPU state no size, which XProf shows as 0; nbprof gives them the size of the block that they free.",
        "parity/test_memory.py::test_a_deallocation_without_a_size_has_that_of_its_block",
    ),
    *(
        Deviation(
            "memory_profile",
            "unused preallocated device memory",
            peer,
            ("tf-gpu/rtx5000-cnn-batch64", "tf-gpu/t4-one-step", "jax/mi300-jax08_attention"),
            "Where a block of the step is freed by an event of another step, or out of order, and its address used again, the peers deduct it twice, so that "
            "the table of the peak has less than what is in use (gpu_host_bfc). In nbprof the rows add up.",
            "parity/test_memory.py::test_blocks_alive_at_the_peak",
        )
        for peer in (XPROF, GUIDE)
    ),
    *(
        Deviation(
            "memory_profile",
            "peak",
            peer,
            ("tf-gpu/rtx5000-cnn-batch8", "tf-gpu/rtx5000-cnn-batch512"),
            "Of several equal peaks the peers show the time of one and look for the blocks of the step of another, so that all memory is one "
            "row, unused. nbprof shows the blocks at the time that it states.",
            "parity/test_memory.py::test_any_moment_adds_up_as_the_peak_does",
        )
        for peer in (XPROF, GUIDE)
    ),
]

OVERVIEW: list[Deviation] = [
    Deviation(
        "overview_page",
        "host_op_percent",
        XPROF,
        _OLD_GPU,
        "XProf finds no op for kernels in files of TensorFlow 2.3/2.4, so all ops seem to run on the host.",
        "parity/test_overview.py::test_op_shares_are_the_guides",
    ),
    Deviation(
        "overview_page",
        "host_op_percent",
        XPROF,
        tuple(name for name in NAMES if name.startswith("jax/")),
        "XProf counts calls of the allocator and the driver, which only state an op, and every host op, as runs of ops.",
        "parity/test_overview.py::test_op_shares_are_xprofs_by_its_rules",
    ),
    *[
        Deviation(
            "overview_page",
            "compute_16bit_percent",
            peer,
            _RTX[1:],
            "The tools count copies of TensorFlow 2.3/2.4 (`MemcpyH2D` …) as 32-bit compute. They are copies.",
            "parity/test_overview.py::test_copies_are_no_compute_of_any_width",
        )
        for peer in (XPROF, GUIDE)
    ],
    Deviation(
        "overview_page",
        "compute_16bit_percent",
        XPROF,
        ("jax/mi300-jax_conv_minimal_08",),
        "XProf goes by kernel names, which for kernels generated by XLA do not show the precision. The programs state "
        "the types that an op reads and writes.",
        "parity/test_overview.py::test_the_width_of_numbers_is_that_of_the_programs",
    ),
    Deviation(
        "overview_page",
        "checks: all_others",
        GUIDE,
        (_RTX[2],),
        "With copies to the device counted as input, 6.6 % of step time is input, so unexplained time is a separate finding.",
        "parity/test_input_pipeline.py::test_our_share_of_input_is_the_guides_and_the_copies_to_the_device",
    ),
    Deviation(
        "overview_page",
        "device_type",
        XPROF,
        (*_OLD_GPU, "tf-cpu/prefetch-example", "tf-cpu/prefetch-128-empty-gpu-plane"),
        "Files of TensorFlow 2.3/2.4 name no vendor, and XProf says `GPU`. Their compute capability is NVIDIA's.",
        "parity/test_overview.py::test_the_environment_is_xprofs",
    ),
    Deviation(
        "overview_page",
        "diagnostics",
        XPROF,
        ("tf-cpu/prefetch-128-empty-gpu-plane",),
        "If a device was traced but ran nothing, XProf has no steps. The host marked them, so nbprof shows them.",
        "parity/test_input_pipeline.py::test_steps_of_the_host_count_where_the_device_ran_nothing",
    ),
    Deviation(
        "overview_page",
        "diagnostics",
        XPROF,
        _UNMARKED,
        _BY_PROGRAM,
        "dialects/test_program_steps.py::test_runs_of_a_program_on_several_gpus_are_steps",
    ),
]

STEPS = [
    Deviation(
        "input_pipeline",
        "device_compute_ms, host_to_device_ms, output_ms, device_to_device_ms",
        GUIDE,
        (*_RTX, "tf-gpu/t4-one-step"),
        "TensorFlow 2.3/2.4 named its copies `MemcpyH2D`, but its tools looked for `MemcpyHToD` and counted the copies "
        "as compute. nbprof knows both names, so copying is input, output or device to device.",
        "parity/test_steps.py::test_copies_of_old_files_are_copies",
    ),
    Deviation(
        "input_pipeline_analyzer",
        "every category, name, and the first and last step",
        XPROF,
        _OLD_GPU,
        "XProf leaves host work out of the steps of a profile with a GPU and calls that time other; it names steps by "
        "their group and drops the first and last of more than five. nbprof follows the guide; `p.steps.as_xprof()` is "
        "XProf's table.",
        "parity/test_steps.py::test_host_work_is_part_of_the_steps_of_a_gpu",
    ),
    Deviation(
        "input_pipeline_analyzer",
        "host_compute_ms, other_ms",
        XPROF,
        (),
        "JAX on the CPU runs most ops of its programs on threads that state no step. XProf counts the time as other; "
        "nbprof as host compute of the marked step in which they start.",
        "dialects/test_xplane_cpu_ops.py::test_ops_on_threads_that_nothing_groups_are_of_the_step_in_which_they_begin",
    ),
    Deviation(
        "input_pipeline_analyzer",
        "rows",
        XPROF,
        ("tf-cpu/prefetch-128-empty-gpu-plane",),
        "These ran on the CPU, and the file names a GPU that recorded nothing. XProf (and TensorFlow's own tools) look "
        "for steps only on the GPU and find none; nbprof shows those of the host.",
        "parity/test_steps.py::test_steps_of_the_host_where_a_gpu_recorded_nothing",
    ),
]
MEMORY_VIEWER = [
    Deviation(
        "memory_viewer",
        "end of a buffer that reuses freed memory",
        XPROF,
        (),
        "If memory is freed and reused by a buffer that shares it, and then shared by others, XProf ends it with the "
        "first reuse; it is in use until the last of them frees it.",
        "parity/test_memory_viewer.py::test_random_heaps",
    ),
    Deviation(
        "memory_viewer",
        "end of a buffer that is never freed",
        XPROF,
        (),
        "For XProf it ends with the last event of the heap, after which it is still there; here it is in the last row too.",
        "parity/test_memory_viewer.py::test_random_heaps",
    ),
    Deviation(
        "memory_viewer",
        "buffers live throughout, in a memory space other than the main one",
        XPROF,
        (),
        "XProf counts buffers live throughout in the peak of every memory space, but lists only those of main memory; "
        "here they are listed in each space, so the list adds up to the peak.",
        "parity/test_memory_viewer.py::test_random_heaps",
    ),
]
_HLO = "parity/test_hlo.py::test_the_frame_is_xprofs_but_for_what_is_known"
HLO = [
    *(
        Deviation(
            "hlo_stats",
            column,
            XPROF,
            (*_JAX_GPU, _TPU),
            "XProf's shares are of device time including idle time, although it has no row for that; nbprof's are of "
            "the ops, as in `p.ops`. `p.op_profile.tree(idle=True)` has both.",
            _HLO,
        )
        for column in ("self_fraction", "cumulative_fraction")
    ),
    *(
        Deviation("hlo_stats", column, XPROF, _JAX_AMD, _MISCOUNTED, _HLO)
        for column in (
            "occurrences",
            "flops_per_second",
            "bytes_per_second",
            "operational_intensity",
            "bound_by",
        )
    ),
    *(
        Deviation("hlo_stats", column, XPROF, (_TPU,), _RUSHED, _HLO)
        for column in ("bytes_per_second", "bound_by")
    ),
    Deviation(
        "op_profile",
        "bandwidth_utilization",
        XPROF,
        (*_JAX_GPU, _TPU),
        "XProf caps utilization at 1, even for a copy that is only started. nbprof keeps what a cache makes possible, "
        "and drops what is impossible.",
        "parity/test_hlo.py::test_the_op_profile_has_xprofs_nodes_with_their_figures",
    ),
    Deviation(
        "roofline_model",
        "bound_by",
        XPROF,
        ("jax/gtx1080ti-reactant",),
        "XProf calls the main memory of every device HBM; nbprof only if it is HBM, otherwise Device memory, or Main "
        "memory for a CPU. The same holds in `p.hlo` and `p.ops`.",
        "analysis/test_hlo.py::test_main_memory_goes_by_what_it_is",
    ),
    Deviation(
        "roofline_model",
        "memory_bytes_per_second",
        XPROF,
        _JAX_AMD,
        "XProf takes two transfers a clock for the bandwidth of an MI300X, 2.66 TB/s, and has ops that move 1.5 times that. Its HBM3 makes four: "
        "5.3 TB/s. What follows from it (bound by, part of the roof, wasted) differs too.",
        "parity/test_hlo.py::test_no_op_of_an_mi300_moves_more_than_its_memory_can",
    ),
    *(
        Deviation(
            "op_profile",
            column,
            XPROF,
            (),
            "Ops that run other ops (`while`, `conditional`, `call`) include their FLOPs and bytes in XProf's tree, so "
            "a program that states both counts them twice; in nbprof's only the inner ops have them.",
            "parity/test_hlo.py::test_the_op_profile_of_many_programs_is_xprofs",
        )
        for column in ("flops_utilization", "bandwidth_utilization")
    ),
]
DEVIATIONS: list[Deviation] = [
    *STEPS,
    *UNITS,
    *OVERVIEW,
    *INPUT,
    *KERNELS,
    *MEMORY,
    *MEMORY_VIEWER,
    *OPS,
    *HLO,
]


def known(tool: str, column: str, peer: str, profile: str) -> Deviation | None:
    """The deviation that covers a column of a tool on a profile."""
    for one in DEVIATIONS:
        if (one.tool, one.column, one.peer) == (tool, column, peer) and profile in one.profiles:
            return one
    return None
