"""Every field of real and freshly recorded profiles, held against the protobuf library; what that
rejects is rejected.
"""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from nbprof.core.errors import ReadError
from nbprof.core.files import LocalFile
from nbprof.formats.xspace import xspace
from tests.support import xspace_proto
from tests.support.profiles import ROOT, real
from tests.support.programs import run

RECORDED = Path(__file__).parents[1] / "data" / "xspace"
FOLDERS = [
    "tf-gpu/rtx5000-cnn-batch8",
    "tf-gpu/rtx5000-cnn-batch64",
    "tf-gpu/rtx5000-cnn-batch512",
    "tf-gpu/t4-one-step",
    "tf-gpu/v100x8-collectives",
    "tf-cpu/prefetch-128-empty-gpu-plane",
    "tf-cpu/prefetch-example",
    "jax/gtx1080ti-reactant",
    "jax/mi300-jax08_attention",
    "jax/mi300-jax_conv_minimal_08",
    "jax/tpu-v6e-inference",
    "findings/D2-tf-trace-json",
    "findings/D5-program-id",
    "findings/D9-D10-custom-calls",
]
TF = """
import json, sys
import tensorflow as tf
from tensorflow.tsl.profiler.protobuf import xplane_pb2
with open(sys.argv[1] + "/schema.json", "w") as file:
    known = list(xplane_pb2.DESCRIPTOR.message_types_by_name.values())
    known += [nested for message in known for nested in message.nested_types]
    names = {m.full_name: [[f.name, f.number, f.type, bool(f.containing_oneof)] for f in m.fields] for m in known}
    json.dump({name.split("profiler.", 1)[1]: sorted(fields) for name, fields in names.items()}, file)
data = tf.data.Dataset.range(64).map(lambda x: tf.cast(x, tf.float32)).batch(8).prefetch(2)
@tf.function
def train_step(x):
    return tf.reduce_sum(tf.linalg.matmul(x[:, None], x[None, :]))
options = tf.profiler.experimental.ProfilerOptions(host_tracer_level=3, python_tracer_level=1)
tf.profiler.experimental.start(sys.argv[1], options=options)
for i, x in enumerate(data):
    with tf.profiler.experimental.Trace("train", step_num=i, _r=1):
        train_step(x)
tf.profiler.experimental.stop()
"""
JAX = """
import sys
import jax, jax.numpy as jnp
@jax.jit
def train_step(x):
    return jnp.tanh(x @ x).sum()
with jax.profiler.trace(sys.argv[1]):
    for i in range(8):
        with jax.profiler.StepTraceAnnotation("train", step_num=i):
            train_step(jnp.ones((16, 16)) * i).block_until_ready()
"""


def record(framework: str, code: str, folder: Path) -> Path:
    run(code, folder, needs=framework)
    return next(folder.rglob("*.xplane.pb"))


@pytest.fixture(scope="module")
def tensorflow(tmp_path_factory):
    folder = tmp_path_factory.mktemp("tensorflow")
    return folder, record("tensorflow", TF, folder)


def agrees(path: Path, least: int) -> None:
    space = xspace_proto.parse(path.read_bytes())
    trace = xspace.read([LocalFile(path)])
    assert xspace_proto.differences(space, trace) == []
    assert len(trace.events) >= least


@pytest.mark.parametrize("name", FOLDERS)
def test_real_files(name):
    for path in sorted(real(name).glob("*.xplane.pb")):
        agrees(path, 50)


def test_no_real_file_is_left_out():
    found = {path.parent.relative_to(ROOT).as_posix() for path in ROOT.glob("*/*/*.xplane.pb")}
    if not found:
        pytest.skip("no real profiles are beside this checkout")
    assert found == set(FOLDERS)


@pytest.mark.parametrize("path", sorted(RECORDED.glob("*.xplane.pb")), ids=lambda path: path.name)
def test_recordings_of_our_own(path):
    agrees(path, 100)


def test_a_fresh_recording_of_tensorflow(tensorflow):
    agrees(tensorflow[1], 100)


def test_the_schema_is_that_of_tensorflow(tensorflow):
    theirs = json.loads((tensorflow[0] / "schema.json").read_text())
    types = {"double": 1, "int64": 3, "uint64": 4, "string": 9, "bytes": 12}
    ours = {
        message: sorted(
            [name, number, types.get(kind, 11), bool(oneof)]
            for name, number, kind, _, oneof in fields
        )
        for message, fields in xspace_proto.SCHEMA.items()
    }
    assert ours == theirs


def test_a_fresh_recording_of_jax(tmp_path):
    agrees(record("jax", JAX, tmp_path), 100)


def test_a_file_that_went_through_a_text_codec_is_rejected_with_a_remedy():
    path = real("bad/utf8-mangled.xplane.pb")
    assert xspace_proto.parse(path.read_bytes()) is None
    with pytest.raises(
        ReadError,
        match=r"utf8-mangled.xplane.pb, byte [\d,]+: .*copied as text.*copy the original again in binary mode",
    ):
        xspace.read([LocalFile(path)])
