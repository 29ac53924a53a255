"""A run that nbprof recorded tells how it was made when it is opened again."""

from __future__ import annotations

import json

from tests.support.xspace import training_run


def test_the_label_and_framework_come_back(tmp_path):
    from nbprof.profiles import load

    folder = tmp_path / "plugins" / "profile" / "a"
    folder.mkdir(parents=True)
    (folder / "h.xplane.pb").write_bytes(training_run(3))
    plain = load(folder)
    assert plain.run.capture is None
    info = {
        "backend": "tensorflow",
        "framework": "TensorFlow 9, Keras 9",
        "started": "2026-01-02T03:04:05",
        "elapsed_s": 1.5,
        "label": "run 7",
    }
    (folder / "nbprof.json").write_text(json.dumps(info))
    again = load(tmp_path)
    assert again.run.capture is not None
    assert "run 7" in again.text()
    assert again.overview["framework"] == "TensorFlow 9, Keras 9"
    assert again.overview["environment"]["versions"] == {"TensorFlow": "9", "Keras": "9"}
    (folder / "nbprof.json").write_text("{ not json")
    assert load(tmp_path).run.capture is None
