"""What is shown to others holds no name: 40 secrets in the text fields of every format, and none of
them in any output.
"""

from __future__ import annotations

import ast
import base64
import gzip
import itertools
import json
import pickle
import re
import shutil
from pathlib import Path
from types import SimpleNamespace

import pytest

import nbprof
from nbprof.display import codec
from nbprof.display.payload import Part
from nbprof.display.redact import Redactor, _literals, vocabulary
from nbprof.profiles.redaction import redacted, redactor
from nbprof.profiles.report.mimebundle import MIME
from tests.support import caching_allocator, msprof, xspace_proto
from tests.support.saved import packed_of

DATA = Path(__file__).parents[1] / "data"
SECRETS = [
    *("zorblatt", "Quuxington", "VORPALIZER", "frumiousNet", "BanderSnatchHead", "snicker_snack_v2", "jabber-wocky-7b", "gyregimble.raths", "outgrabe_31"),
    *("s3cr3t_t0k3n", "a1b2c3d4e5f6", "0xdeadbeef42", "9f8e7d6c5b4a", "GPT-zyx-9000T", "uffishLayer_0", "model/tulgey/wood", "whiffling::Op"),
    *("alice@tulgeywood.example", "bob.burble", "10.201.33.44", "fe80::1ff:fe23:4567:890a", "00:1b:44:11:3a:b7", "galumphing-node-17", "проект", "机密模型"),
    *("/srv/beamish/train_vorpal.py", "/mnt/calloohay/run 7/data", "C:\\Users\\callay\\nets.py", "s3://chortled-bucket/run", "gs://tumtum/tree", "~/manxome/foe.py"),
    *("confidential", "secret", "callay_customer_42", "ProjektÜbung", "tôpsécret", "slithy tove", "mimsyBorogoves", "x-bandersnatch-y", "frabjous_day_step"),
]  # fmt: skip
EXPECTED = 40
RUN = {
    "source": SimpleNamespace(name="run", file="run.pb", path="/srv/run", local=()),
    "capture": None,
}


def cores(secret):
    """The parts of a secret that would give it away."""
    words = [
        part.casefold()
        for part in re.findall(r"[^\W\d_]{4,}", secret)
        if part.casefold() not in vocabulary()
    ]
    return words or [secret.casefold()]


def planter():
    """A function that gives the next secret, alone or as a part of what is there."""
    turn = itertools.cycle(SECRETS)
    shapes = itertools.cycle(["{0}", "{1}/{0}", "{0}_{1}", "{1} {0}"])
    return lambda text="": next(shapes).format(next(turn), text)


def in_json(folder, name, source):
    """Names, args, metadata: every text but those that say what an event is."""
    content, secret = json.loads(gzip.decompress(source.read_bytes())), planter()
    kinds = {"ph", "cat", "s", "bp", "Record function id", "schemaVersion", "displayTimeUnit"}

    def planted(value, key="", keep=False):
        if isinstance(value, dict):
            # Process and thread names, and a third of the names of events, say where and what it
            # is: a secret is put beside them.
            return {k: planted(v, k, keep or value.get("ph") == "M") for k, v in value.items()}
        if isinstance(value, list):
            return [
                planted(each, key) if i % 3 or key != "traceEvents" else each
                for i, each in enumerate(value)
            ]
        return (
            f"{value} {secret()}"
            if isinstance(value, str) and keep and key not in kinds and key != "name"
            else (
                secret(value) if isinstance(value, str) and key not in kinds and not keep else value
            )
        )

    path = folder / f"beamish-host.{name}"
    path.write_text(json.dumps(planted(content)))
    return path


def in_xspace(folder, source):
    space, secret = xspace_proto.parse(source.read_bytes()), planter()
    for field in ("errors", "warnings"):
        getattr(space, field).extend(secret() for _ in SECRETS)
    del space.hostnames[:]
    space.hostnames.append("galumphing-node-17")
    for plane in space.planes:
        for line in plane.lines:
            line.display_name = secret(line.display_name or line.name)
        for i, metadata in enumerate(plane.event_metadata.values()):
            if i % 2:
                metadata.name = secret(metadata.name)
            metadata.display_name = secret(metadata.display_name)
        for line in plane.lines:
            for event in line.events:
                for stat in event.stats:
                    if stat.str_value:
                        stat.str_value = secret(stat.str_value)
    run = folder / "plugins" / "profile" / "slithy tove"
    run.mkdir(parents=True)
    (run / "galumphing-node-17.xplane.pb").write_bytes(space.SerializeToString())
    told = dict.fromkeys(
        ("label", "notebook", "error", "precision", "batch", "group"), "zorblatt frumiousNet [3]"
    )
    lists = {
        "notes": SECRETS,
        "warnings": SECRETS[:5],
        "cells": {"outgrabe_31": 3},
        "cell_failed": True,
        "backend": "tensorflow",
    }
    (run / "nbprof.json").write_text(
        json.dumps({**told, **lists, "framework": "TensorFlow 2.21.0"})
    )
    return run


def in_msprof(folder):
    secret = planter()
    tasks, iterations = msprof.training()
    for task in tasks:
        task.name = secret(task.name).replace(",", " ").replace('"', "")
    return msprof.prof(folder / "PROF_1", tasks, iterations)


def in_snapshot(folder):
    made, secret = caching_allocator.snapshot(caching_allocator.fragmented()), planter()
    frames = {}

    def planted(value):
        if isinstance(value, dict) and {"name", "filename", "line"} <= set(value):
            key = json.dumps(value)
            frames.setdefault(
                key,
                {
                    "name": secret(value["name"]),
                    "filename": secret(value["filename"]),
                    "line": value["line"],
                },
            )
            return frames[key]
        if isinstance(value, dict):
            return {k: planted(v) for k, v in value.items()}
        return [planted(each) for each in value] if isinstance(value, list) else value

    path = folder / "vorpal.pickle"
    path.write_bytes(pickle.dumps(planted(made)))
    return path


PLANTED = {
    "kineto": lambda folder: in_json(
        folder, "1623143089861.pt.trace.json", DATA / "kineto" / "cpu_train.pt.trace.json.gz"
    ),
    "kineto with modules": lambda folder: in_json(
        folder, "1623143089861.pt.trace.json", DATA / "torch" / "modules.pt.trace.json.gz"
    ),
    "chrome": lambda folder: in_json(
        folder, "trace.json", DATA / "chrome" / "jax_cpu.trace.json.gz"
    ),
    "xspace of TensorFlow": lambda folder: in_xspace(folder, DATA / "xspace" / "tf_slow.xplane.pb"),
    "xspace of JAX": lambda folder: in_xspace(folder, DATA / "xspace" / "jax_cpu.xplane.pb"),
    "msprof": in_msprof,
    "snapshot": in_snapshot,
}


@pytest.fixture(scope="module", params=PLANTED)
def planted(request, tmp_path_factory):
    return nbprof.load(PLANTED[request.param](tmp_path_factory.mktemp("planted")))


def texts(value):
    if isinstance(value, (dict, Part)):
        yield from (text for pair in value.items() for each in pair for text in texts(each))
    elif isinstance(value, (list, tuple)):
        yield from (text for each in value for text in texts(each))
    elif isinstance(value, str):
        yield value


def leaks(*shown):
    """The secrets of which something stands in what is shown; payloads are unpacked."""
    found = set()
    for each in shown:
        text = "\n".join(texts(each)).casefold()
        found |= {secret for secret in SECRETS for core in cores(secret) if core in text}
    return found


def outputs(p, tmp_path, **options):
    page = p.save(tmp_path / "report.html", **options).read_text()
    bundle, _ = p.mimebundle(**options)
    held = codec.unpack(packed_of(bundle))
    static = {kind: text for kind, text in bundle.items() if kind != "image/png"}
    script_free = re.sub(r"<script.*?</script>", "", page, flags=re.DOTALL)
    return (
        script_free,
        codec.unpack(packed_of(page)),
        held,
        static[MIME],
        static["text/plain"],
        p.brief(10**6, **options),
    )


def test_there_are_as_many_as_are_told():
    assert len(set(SECRETS)) == EXPECTED


def test_no_secret_is_in_anything_that_is_shown(planted, tmp_path):
    assert leaks(*outputs(planted, tmp_path, redact=True)) == set()


def test_without_it_they_are(planted, tmp_path):
    assert len(leaks(*outputs(planted, tmp_path))) >= 3


def test_a_comparison(tmp_path):
    folders = [tmp_path / "one", tmp_path / "two"]
    for folder in folders:
        folder.mkdir()
    c = nbprof.compare(*(PLANTED["kineto"](folder) for folder in folders))
    page = c.save(tmp_path / "report.html", redact=True).read_text()
    bundle, _ = c.mimebundle(redact=True)
    shown = (
        codec.unpack(packed_of(page)),
        codec.unpack(packed_of(bundle)),
        c.text(redact=True),
        c.markdown(redact=True),
    )
    assert leaks(*shown, nbprof.brief(c, 10**6, redact=True)) == set()
    assert leaks(c.text(), c.payload())


def test_numbers_stay(planted, tmp_path):
    def numbers(value):
        if isinstance(value, dict):
            return [number for each in value.values() for number in numbers(each)]
        if isinstance(value, (list, tuple)):
            return [number for each in value for number in numbers(each)]
        return (
            []
            if isinstance(value, str) or value is None
            else [value.tolist() if hasattr(value, "tolist") else value]
        )

    plain, _ = planted.mimebundle()
    redacted, _ = planted.mimebundle(redact=True)
    assert str(numbers(codec.unpack(packed_of(redacted)))) == str(
        numbers(codec.unpack(packed_of(plain)))
    )


def test_it_asks_no_kernel(planted):
    bundle, _ = planted.mimebundle(redact=True)
    assert {"key", "files"} & set(bundle[MIME]) == set()


def test_the_list_is_kept_aside_and_the_same_name_has_the_same_pseudonym(planted, tmp_path):
    for name in ("one", "two"):
        planted.save(tmp_path / f"{name}.html", redact=tmp_path / f"{name}.json")
    one, two = (json.loads((tmp_path / f"{name}.json").read_text()) for name in ("one", "two"))
    assert one == two
    assert len(one) > 3
    assert leaks(one)
    assert not leaks(list(one))
    assert all(re.fullmatch(r"name_[0-9a-f]{8}", pseudonym) for pseudonym in one)


def test_another_key_gives_other_pseudonyms():
    one, two = (Redactor((), key).text("zorblatt") for key in (b"1", b"2"))
    assert one != two


@pytest.mark.parametrize(
    "name",
    [
        "aten::_flash_attention_forward",
        "Iterator::Root::Map::BatchV2",
        "StatefulPartitionedCall/sequential_1/dense_1/MatMul",
        "void cutlass::Kernel2<cutlass_80_tensorop_f16_s16816gemm_relu_f16_128x128_32x3_tn_align8::Params>",
        "sm90_xmma_gemm_bf16bf16_bf16f32_f32_tn_n_tilesize64x64x64_warpgroupsize1x1x1_execute_segment_k_off_kernel__5x_cublas",
        "ncclDevKernel_AllReduce_Sum_bf16_RING_LL",
        "bf16[8192,1024]{1,0}",
        "AssignSubVariableOp_2",
        "…/site-packages/torch/nn/modules/linear.py:12",
        "84% of step time is spent waiting for data, 1.2 × 10⁹ µs",
        "2026-11-21 19:58:48 UTC",
        "jit(train_step)/transpose(jvp(Model))/Dense_0/dot_general",
        "/job:worker/replica:0/task:3/device:GPU:0",
        "custom-call(f32[2]{0} %qkv.1, /*index=5*/s32[3]{0} %fusion)",
        "Cijk_Alik_Bljk_BBS_BH_Bias_HA_S_SAV_UserArgs_MT64x32x128_MI16x16x1_SN_LDSB1_AFC1_AF0EM1_CLR1",
        "nvjet_tst_128x256_64x4_1x2_h_bz_coopA_NTN",
        "void cudnn::winograd_nonfused::winogradForwardData4x4<float, float>",
        "bn_fw_tr_1C11_kernel_NCHW",
        "cudaLaunchKernelExC",
        "cuLaunchKernel",
        "Tesla V100-DGXS-32GB",
        "AMD Instinct MI300X",
        "<built-in method isinstance>",
        "GPU_0_bfc",
    ],
)
def test_names_of_frameworks_and_libraries_stay(name):
    assert Redactor((), b"k").text(name) == name


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("ip-10-0-12-34.internal", "name.internal"),
        ("00-1b-44-11-3a-b7", "name"),
        ("s\u200be\u200bc\u200br\u200be\u200bt", "name"),
        ("u\u0308bung गोपनीय", "name name"),
        ("`/srv/video/encoder` 12", "`name` 12"),
        ("“/srv/video/encoder”", "“name”"),
        ("**/srv/video/encoder**", "**name**"),
        ("secret", "name"),
    ],
)
def test_what_would_hide_a_name_and_what_stands_around_it(name, expected):
    assert re.sub("name_[0-9a-f]{8}", "name", Redactor((), b"k").text(name)) == expected


def test_literals_are_found_as_python_finds_them():
    """The vocabulary reads nbprof's code by a regular expression, since `ast` takes seconds."""

    def of(texts):
        return {word for text in texts for word in re.findall(r"[a-z]{3,}", text.lower())}

    found, parsed = set(), set()
    for path in (Path(nbprof.__file__).parent / "display").glob("*.py"):
        code = path.read_text(encoding="utf-8")
        tree = ast.parse(code)
        docstrings = {id(node.value) for node in ast.walk(tree) if isinstance(node, ast.Expr)}
        constants = [
            node.value
            for node in ast.walk(tree)
            if isinstance(node, ast.Constant) and id(node) not in docstrings
        ]
        parsed |= of(text for text in constants if isinstance(text, str))
        found |= of(_literals(code))
    assert len(parsed) > 100
    assert found == parsed


def heads(value):
    """The columns of all tables."""
    if isinstance(value, (dict, Part)):
        if {"key", "label"} <= set(value):
            yield value["key"], value["label"], value.get("help")
        yield from (head for _, each in value.items() for head in heads(each))
    elif isinstance(value, list):
        yield from (head for each in value for head in heads(each))


@pytest.mark.parametrize(
    "file",
    [
        DATA / "xspace" / "jax_cpu.xplane.pb",
        DATA / "ascend" / "after.zip",
        DATA / "torch" / "cpu_ops.pt.trace.json.gz",
    ],
    ids=lambda file: file.name,
)
def test_the_page_finds_its_columns_and_its_sentences_stay(file, tmp_path):
    """A file and a folder that are called as ordinary words are."""
    path = tmp_path / "step" / f"time{''.join(file.suffixes)}"
    path.parent.mkdir()
    shutil.copy(file, path)
    p = nbprof.load(path)
    plain, shown = p.payload(), redacted(p.payload(), [p.run], True)
    assert [list(shown[part]) for part in shown] == [list(plain[part]) for part in plain]
    assert list(heads(shown)) == list(heads(plain))
    assert shown["overview"]["advice"] == plain["overview"]["advice"]
    assert shown["overview"]["figures"] == plain["overview"]["figures"]


def test_the_folder_is_not_named(tmp_path):
    folder = tmp_path / "video_encoder"
    folder.mkdir()
    shutil.copy(DATA / "kineto" / "cpu_train.pt.trace.json.gz", folder / "x.pt.trace.json.gz")
    p = nbprof.load(folder / "x.pt.trace.json.gz")
    assert "video_encoder" in str(p.payload()["overview"]["run"])
    assert "video_encoder" not in str(redacted(p.payload(), [p.run], True))


def test_ranks_are_no_names():
    assert "rank 3" in redactor([SimpleNamespace(**RUN, hosts=["rank 3, video-encoder"])]).text(
        "rank 3"
    )
    assert "encoder" not in redactor(
        [SimpleNamespace(**RUN, hosts=["rank 3, video-encoder"])]
    ).text("on video-encoder:8466")


def test_of_thousands_of_hosts_each_is_replaced():
    by = Redactor([f"node-{i}" for i in range(3000)] + ["node-7.rack"], b"k")
    assert "node" not in by.text("node-7.rack node-2999:1, (node-12)")
    assert by.text("node-4000, xnode-1") == "node-4000, xnode-1".replace(
        "xnode-1", by.text("xnode-1")
    )


def test_a_name_made_of_public_words_goes_where_it_is_that_of_a_host_or_file():
    assert "host-a" not in Redactor(["host-a", "host"], b"k").text("Of host-a; on a host")
    # A file may be called like a column, which the page finds by its name.
    assert Redactor(["step_time_ms"], b"k").text("step_time_ms") == "step_time_ms"


def test_a_recorded_cell(tmp_path):
    """The static HTML of a report without scripts holds no more than the payload it is made of."""
    p = nbprof.load(PLANTED["kineto"](tmp_path))
    bundle, _ = p.mimebundle(live=False, redact=True)
    assert leaks(bundle["text/html"], bundle["text/plain"]) == set()
    assert base64.b64decode(bundle["image/png"])[:4] == b"\x89PNG"
