"""What the devices of a profile are called."""

import pandas as pd
import pytest

from nbprof.activity.activity import device_names


@pytest.mark.parametrize(
    ("names", "called"),
    [
        (["H200", "H200"], "H200"),
        (["A100", "GPU", "GPU"], "A100"),
        (["GPU", "GPU"], "GPU"),
        (["A100", "V100"], "A100, V100"),
        ([], ""),
    ],
)
def test_a_device_that_is_not_named_is_no_model_of_its_own(names, called):
    assert device_names(pd.DataFrame({"name": names, "kind": ["GPU"] * len(names)})) == called
