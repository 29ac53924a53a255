"""Random files in every shape that the format allows, whole and damaged, held against the protobuf
library.
"""

from __future__ import annotations

import random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from nbprof.core.errors import ReadError
from nbprof.core.files import LocalFile
from nbprof.formats.xspace import xspace
from tests.support import xspace_proto
from tests.support.xspace import gpu_run, training_run
from tests.support.xspace_check import LIMITS, check, small_limits
from tests.support.xspace_random import Writer, damaged


@pytest.fixture(scope="module")
def path(tmp_path_factory):
    return tmp_path_factory.mktemp("xspace") / "host.xplane.pb"


@pytest.fixture(params=["as is", "small limits"], scope="module")
def limits(request):
    with pytest.MonkeyPatch.context() as patch:
        if request.param == "small limits":
            small_limits(patch)
        yield request.param


def verdict(path, data):
    """The trace or the error, after both were checked."""
    path.write_bytes(data)
    try:
        result = xspace.read([LocalFile(path)])
    except ReadError as error:
        result = error
    check(data, result)
    return result


@settings(max_examples=120, deadline=None)
@given(st.integers(0, 2**32))
def test_what_protobuf_reads_is_read_the_same(path, limits, seed):
    data = Writer(random.Random(seed)).space()
    assert xspace_proto.parse(data) is not None
    assert not isinstance(verdict(path, data), ReadError)


@settings(max_examples=60, deadline=None)
@given(st.integers(0, 2**32))
def test_files_without_oddities_take_the_common_way(path, limits, seed):
    verdict(path, Writer(random.Random(seed), odd=10**6).space())


@settings(max_examples=120, deadline=None)
@given(st.integers(0, 2**32))
def test_damage_is_an_error_or_a_line_in_the_receipt_or_harmless(path, limits, seed):
    chance = random.Random(seed)
    data = chance.choice([Writer(chance).space, gpu_run, training_run])()
    verdict(path, damaged(data, chance))


@settings(max_examples=60, deadline=None)
@given(st.data())
def test_flipped_bits(path, limits, data):
    file = bytearray(gpu_run())
    for at in data.draw(st.lists(st.integers(0, len(file) * 8 - 1), min_size=1, max_size=4)):
        file[at // 8] ^= 1 << at % 8
    verdict(path, bytes(file))


def test_limits_are_those_of_the_reader():
    # A limit that was renamed would leave the tests above on the common way.
    assert all(hasattr(module, name) for module, name, _ in LIMITS)
