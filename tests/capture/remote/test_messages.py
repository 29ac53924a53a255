"""Our encoder and decoder against the protobuf library, with the service's messages built by
hand.
"""

from __future__ import annotations

import contextlib
from functools import cache

import pytest
from google.protobuf import descriptor_pb2, descriptor_pool, message_factory
from hypothesis import given
from hypothesis import strategies as st

from nbprof.capture.remote.messages import ProfileRequest, ProfileResponse, TerminateRequest
from nbprof.core.errors import ReadError

TYPES = {"uint64": 4, "bool": 8, "string": 9, "bytes": 12, "uint32": 13}
# message -> (name, number, type or message, repeated)
SCHEMA = {
    "ProfileOptions": [
        ("include_dataset_ops", 1, "bool", False),
        ("host_tracer_level", 2, "uint32", False),
        ("device_tracer_level", 3, "uint32", False),
        ("python_tracer_level", 4, "uint32", False),
        ("version", 5, "uint32", False),
        ("enable_hlo_proto", 7, "bool", False),
        ("start_timestamp_ns", 8, "uint64", False),
        ("duration_ms", 9, "uint64", False),
    ],
    "ProfileRequest": [
        ("duration_ms", 1, "uint64", False),
        ("max_events", 2, "uint64", False),
        ("tools", 3, "string", True),
        ("opts", 4, "ProfileOptions", False),
        ("repository_root", 5, "string", False),
        ("session_id", 6, "string", False),
        ("host_name", 7, "string", False),
        ("emit_xspace", 9, "bool", False),
    ],
    "ProfileToolData": [("name", 1, "string", False), ("data", 2, "bytes", False)],
    # The recording is a message; as bytes it looks the same on the wire.
    "ProfileResponse": [
        ("tool_data", 6, "ProfileToolData", True),
        ("empty_trace", 7, "bool", False),
        ("xspace", 8, "bytes", False),
    ],
    "TerminateRequest": [("session_id", 1, "string", False)],
}


@cache
def message(name):
    file = descriptor_pb2.FileDescriptorProto(
        name="service_of_tests.proto", package="service_of_tests", syntax="proto3"
    )
    for own, fields in SCHEMA.items():
        built = file.message_type.add(name=own)
        for field_name, number, kind, repeated in fields:
            field = built.field.add(
                name=field_name, number=number, label=3 if repeated else 1, type=TYPES.get(kind, 11)
            )
            if kind not in TYPES:
                field.type_name = f".service_of_tests.{kind}"
    pool = descriptor_pool.DescriptorPool()
    pool.Add(file)
    return {
        own: message_factory.GetMessageClass(pool.FindMessageTypeByName(f"service_of_tests.{own}"))
        for own in SCHEMA
    }[name]


TEXT = st.text(st.characters(exclude_categories=["Cs"]), max_size=300)


@given(
    duration=st.integers(0, 3_600_000),
    host=st.integers(0, 3),
    device=st.integers(0, 1),
    python=st.integers(0, 1),
    start=st.integers(0, 2**64 - 1),
    root=TEXT,
    session=TEXT,
    name=TEXT,
)
def test_a_request_is_read_by_protobuf_as_it_was_meant(
    duration, host, device, python, start, root, session, name
):
    read = message("ProfileRequest").FromString(
        ProfileRequest(duration, host, device, python, start, root, session, name).encode()
    )
    assert (read.duration_ms, read.repository_root, read.session_id, read.host_name) == (
        duration,
        root,
        session,
        name,
    )
    assert (read.max_events, list(read.tools), read.emit_xspace) == (1_000_000, ["xplane.pb"], True)
    opts = read.opts
    assert (opts.host_tracer_level, opts.device_tracer_level, opts.python_tracer_level) == (
        host,
        device,
        python,
    )
    assert (opts.start_timestamp_ns, opts.duration_ms) == (start, duration)
    assert (opts.version, opts.enable_hlo_proto, opts.include_dataset_ops) == (1, True, True)
    assert not read.DiscardUnknownFields()


@given(TEXT)
def test_so_is_the_end_of_a_session(session):
    assert (
        message("TerminateRequest").FromString(TerminateRequest(session).encode()).session_id
        == session
    )


def test_a_path_that_is_no_unicode_is_sent_nevertheless():
    assert (
        message("ProfileRequest")
        .FromString(ProfileRequest(1, root="/a\udcff").encode())
        .repository_root
        == "/a?"
    )


@given(
    xspace=st.none() | st.binary(max_size=400),
    empty=st.booleans(),
    others=st.lists(TEXT.filter(lambda t: not t.endswith("xplane.pb"))),
)
def test_an_answer_of_protobuf_is_read_as_it_was_meant(xspace, empty, others):
    written = message("ProfileResponse")(empty_trace=empty)
    if xspace is not None:
        written.xspace = xspace
    for name in others:
        written.tool_data.add(name=name, data=b"no recording")
    read = ProfileResponse.decode(written.SerializeToString())
    assert read.empty is empty
    # proto3 leaves an empty text out of the message.
    assert (None if read.xspace is None else bytes(read.xspace)) == (xspace or None)


def test_a_recording_among_the_files_of_an_answer():
    written = message("ProfileResponse")()
    written.tool_data.add(name="overview_page.pb", data=b"1")
    written.tool_data.add(name="host.xplane.pb", data=b"22")
    written.tool_data.add(name="trace.json", data=b"333")
    assert bytes(ProfileResponse.decode(written.SerializeToString()).xspace) == b"22"


@given(st.binary(max_size=200))
def test_any_bytes_are_an_answer_or_a_sentence(data):
    with contextlib.suppress(ReadError):
        response = ProfileResponse.decode(data)
        assert response.xspace is None or bytes(response.xspace) in data


@pytest.mark.parametrize("data", [b"\x42\xff", b"\x00", b"\x42\x05abc"])
def test_what_is_cut_or_no_message_is_said(data):
    with pytest.raises(ReadError, match=r"byte [0-9]"):
        ProfileResponse.decode(data)
