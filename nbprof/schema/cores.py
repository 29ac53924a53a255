"""The schema of the frame of TPU cores, as nbprof/schema/frames.py has those of the other views."""

from __future__ import annotations

from nbprof.schema.columns import Col, ms

SCHEMA: dict[str, list[Col]] = {
    "pods_cores": [
        Col("step", "int64", "", "Step", "Step number as the framework counts it.", "number", 0),
        Col("worker", "object", "", "Worker", "Host and TPU, and the SparseCore where the row is of one.", "text"),
        Col("chip", "Int64", "", "Chip", "Number of the chip on its host.", "number", 0),
        ms("step_time_ms", "Step ms", "Duration of the step on this core."),
        ms("compute_ms", "Compute", "Ops of every other kind, copies within the device included."),
        ms("infeed_ms", "Infeed", "The core waits for data from the host's infeed queue."),
        ms("outfeed_ms", "Outfeed", "The core gives data to the host's outfeed queue."),
        ms("all_reduce_compute_ms", "All-reduce compute", "Collectives, as long as on the core where each took least."),
        ms("all_reduce_sync_ms", "All-reduce sync", "The rest of collectives: waiting for the other cores."),
        ms("send_ms", "Send", "Ops that send to another core."),
        ms("recv_ms", "Receive", "Ops that receive from another core."),
        ms("host_transfer_ms", "Host transfer", "Sends, receives and copies between the device and the memory of the host."),
        ms("idle_ms", "Idle", "No op ran."),
        Col("name", "object", "", "Name", "Name of the step marker on the core's host.", "text"),
        ms("start_ms", "Start ms", "Begin of the step on this core after the start of the profile."),
    ]
}
COLUMNS = [column.name for column in SCHEMA["pods_cores"]]
