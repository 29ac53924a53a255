"""`p.advice` is a frame, and displays as the findings of the dashboard."""

import copy
import pickle
from pathlib import Path

import pandas as pd

from nbprof import load
from tests.support.saved import payload_of

SLOW = Path(__file__).parents[1] / "data/xspace/tf_slow.xplane.pb"


def test_it_displays_as_findings_with_their_code():
    p = load(SLOW)
    data, _ = p.advice._repr_mimebundle_()
    shown = payload_of(data)
    assert [tab["id"] for tab in shown["meta"]["tabs"]] == ["overview"]
    assert shown["overview"]["only"] == "advice"
    assert (
        [item["title"] for item in shown["overview"]["advice"]] == p.advice["title"].tolist() != []
    )
    # Without scripts too, and without what the marks are made of.
    for row in p.advice.to_dict("records"):
        assert row["title"] in data["text/html"]
        assert row["title"] in data["text/plain"]
        assert (
            f"{row['certainty'].capitalize()}. Wrong if {row['refuted_by']}." in data["text/html"]
        )
    assert "**" not in data["text/html"].partition("<script")[0]
    assert "<th>rule</th>" not in data["text/html"]
    assert "image/png" not in data
    # The dashboard itself has everything.
    assert "only" not in p.payload()["overview"]


def test_it_stays_a_frame():
    p = load(SLOW)
    advice = p.advice
    assert isinstance(advice, pd.DataFrame)
    for other in (
        advice.head(1),
        advice.copy(),
        advice[advice["severity"] == "high"],
        pickle.loads(pickle.dumps(advice)),
    ):
        assert type(other) is pd.DataFrame
        assert list(other.columns) == list(advice.columns)
    advice["title"] = "changed"
    assert p.advice["title"].tolist() != advice["title"].tolist()


def test_the_overview_stays_a_dict_and_displays_as_its_tab():
    p = load(SLOW)
    data, _ = p.overview._repr_mimebundle_()
    assert [tab["id"] for tab in payload_of(data)["meta"]["tabs"]] == ["overview"]
    assert repr(p.overview) == repr(p.run.overview)
    for other in (
        copy.deepcopy(p.overview),
        copy.copy(p.overview),
        pickle.loads(pickle.dumps(p.overview)),
        p.overview | {},
    ):
        assert type(other) is dict
        assert list(other) == list(p.overview)
