"""Damaged bytes are an error with a sentence, or a profile that can still be looked at: never anything else."""

from __future__ import annotations

import random
import warnings

import pytest

from nbprof.errors import ReadError
from nbprof.profiles import load
from tests.support.xspace import gpu_run, training_run


@pytest.mark.parametrize("seed", range(8))
def test_random_damage_ends_in_a_sentence_or_a_profile(tmp_path, seed):
    rng = random.Random(seed)
    path = tmp_path / "host.xplane.pb"
    outcomes = {"error": 0, "profile": 0}
    for turn in range(12):
        data = bytearray(training_run(3) if turn % 2 else gpu_run())
        for _ in range(rng.choice([1, 1, 2, 5])):
            data[rng.randrange(len(data))] = rng.randrange(256)
        path.write_bytes(bytes(data))
        try:
            profile = load(path)
        except ReadError as error:
            outcomes["error"] += "host.xplane.pb" in str(error)
            continue
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", RuntimeWarning)
            outcomes["profile"] += bool(profile.payload()) and bool(profile.text())
    assert sum(outcomes.values()) == 12
    assert outcomes["error"] > 0
