"""What a test puts into a run in place of a frame could have come out of one."""

from __future__ import annotations

import pytest

from tests.support.replaced import shaped
from tests.views import fake


def test_a_frame_takes_the_place_of_the_real_one():
    rows = fake.run().kernels.head(1)
    assert len(fake.run(kernels=rows).kernels) == 1
    nodes = fake.run().tf_data.nodes.head(2)
    assert len(fake.run(**{"tf_data.nodes": nodes}).tf_data.nodes) == 2


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (lambda kernels: kernels.drop(columns="grid"), "kernels has the columns"),
        (lambda kernels: kernels.assign(extra=1), "kernels has the columns"),
        (lambda kernels: kernels.assign(occurrences="many"), r"\('str', 'int64'\)"),
        (lambda kernels: kernels.assign(occurrences=1.5), r"\('float64', 'int64'\)"),
        (
            lambda kernels: kernels.assign(block=[(8, 8, 1), (1, 1, 1)], total_us=["1", "2"]),
            "total_us",
        ),
    ],
)
def test_a_frame_with_other_columns_or_types_is_refused(change, said):
    with pytest.raises(AssertionError, match=said):
        fake.run(kernels=change(fake.run().kernels))


def test_columns_that_rows_lack_are_filled_in():
    run = fake.run()
    kernels = shaped(run, "kernels", run.kernels[["rank", "kernel", "total_us"]])
    assert len(fake.run(kernels=kernels).kernels) == 2
    assert kernels["occupancy_percent"].isna().all()
    assert kernels["op"].tolist() == ["", ""]
