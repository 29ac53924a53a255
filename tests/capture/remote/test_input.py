"""What a person may type: addresses and numbers."""

from __future__ import annotations

import contextlib
import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

import nbprof
from nbprof.capture.remote.addresses import Address, parse
from nbprof.capture.remote.sampling import Sampling
from nbprof.core.errors import CaptureError
from tests.capture.notes import text_of


@pytest.mark.parametrize(
    ("given_", "found"),
    [
        ("grpc://a:6009", ["a:6009"]),
        ("grpc://a:6009,grpc://b-1.example.org:6010/", ["a:6009", "b-1.example.org:6010"]),
        (" a:1 ,, GRPC://10.0.0.3:2,", ["a:1", "10.0.0.3:2"]),
        (["a:1", "b:2,c:3"], ["a:1", "b:2", "c:3"]),
        (("grpc://[::1]:6009", "[fe80::1%eth0]:1"), ["[::1]:6009", "[fe80::1%eth0]:1"]),
        (iter(["a_b:65535"]), ["a_b:65535"]),
    ],
)
def test_addresses(given_, found):
    addresses, notes = parse(given_)
    assert [str(address) for address in addresses] == found
    assert not notes


def test_what_is_given_twice_is_recorded_once_and_said():
    addresses, notes = parse("a:1,grpc://a:1,b:1,a:1")
    assert [str(address) for address in addresses] == ["a:1", "b:1"]
    assert text_of(notes, "repeated_address").startswith("a:1 was given")


@pytest.mark.parametrize(
    ("given_", "says"),
    [
        ("", "no address given"),
        ([], "no address given"),
        (" , ", "no address given"),
        ("host", "host has no port: write it as host:6009"),
        ("grpc://host", "grpc://host has no port"),
        ("host:", "is not an address"),
        (":6009", "is not an address"),
        ("host:0", "from 1 to 65535"),
        ("host:65536", "from 1 to 65535"),
        ("host:x", "is not an address"),
        ("host:²", "is not an address"),
        ("http://host:6006", "workers are not asked by http; write it"),
        ("host name:1", "is not an address"),
        ("user@host:1", "is not an address"),
        ("host:1/path", "is not an address"),
        ("::1:6009", "in brackets, as"),
        ("unix:///tmp/x", "not asked by unix"),
        ("host:6009 --duration", "is not an address"),
        (6009, "not int"),
        (None, "not NoneType"),
        (b"a:1", "not bytes"),
        ([("a", 1)], re.escape("not ('a', 1)")),
    ],
)
def test_what_is_no_address_is_said(given_, says):
    with pytest.raises(CaptureError, match=says):
        parse(given_)


@given(st.text(max_size=60))
def test_any_text_is_addresses_or_a_sentence(text):
    with contextlib.suppress(CaptureError):
        addresses, _ = parse(text)
        assert addresses
        assert all(re.fullmatch(r"[\w.-]+", address.file_stem) for address in addresses)


def test_files_of_two_workers_of_a_machine_have_names_of_their_own():
    assert Address("host", 1).file_stem != Address("host", 2).file_stem
    assert Address("[fe80::1%eth0]", 6009).file_stem == "fe80__1_eth0_6009"


@pytest.mark.parametrize(
    ("option", "value", "says"),
    [
        ("duration_ms", 0, "1 ms to 3,600,000 ms (an hour), not 0"),
        ("duration_ms", 10 * 86_400_000, "(an hour), not 864,000,000"),
        ("duration_ms", -1, "not -1"),
        ("duration_ms", 1.5, "a whole number, not 1.5"),
        ("duration_ms", "2000", "a whole number, not '2000'"),
        ("duration_ms", True, "not True"),
        ("host_level", 4, "0, 1, 2 or 3, not 4"),
        ("device_level", 2, "0 or 1, not 2"),
        ("python_level", -1, "0 or 1, not -1"),
        ("retries", -1, "0 to 100, not -1"),
        ("retries", 101, "0 to 100, not 101"),
        ("delay_ms", -1, "(an hour), not -1"),
    ],
)
def test_what_makes_no_sense_is_said_before_anybody_is_asked(option, value, says):
    with pytest.raises(CaptureError, match=re.escape(says)):
        nbprof.capture("nobody.invalid:1", **{option: value})


def test_several_workers_are_given_time_to_begin_together():
    assert Sampling().delay_for(1) == 0
    assert Sampling().delay_for(2) > 0
    assert Sampling(delay_ms=0).delay_for(2) == 0
    assert Sampling(delay_ms=70).delay_for(1) == 70


def test_the_room_is_called_whatever_was_imported_from_it():
    import nbprof.capture.options

    assert callable(nbprof.capture)
    with pytest.raises(CaptureError, match="has no port"):
        nbprof.capture("host")
