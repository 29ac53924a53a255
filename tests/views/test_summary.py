"""The run without a front end: ten lines of text, one picture, and the wording of numbers and
names.
"""

from __future__ import annotations

import json
from io import BytesIO

import pytest
from PIL import Image

from nbprof.display import wording
from nbprof.profiles.load import load
from nbprof.tools import canvas, text
from nbprof.tools import dashboard as payload
from nbprof.tools.overview import picture
from tests.views import fake

GOLDEN = """\
nbprof · run 7 · 8 steps · 65 ms · Tesla T4 · 14:02:31
Input-bound: 51% of step time is spent waiting for data (confidence medium)
Average step        8.16 ms ± 0.44, median 8.00, p95 9.25, range 8.00–9.25
  Input                  4.16 ms   51.0%  ███████████████
  Device compute         1.50 ms   18.4%  ██████
  Other                  1.00 ms   12.3%  ████
Top op on device    gradient_tape/sequential/conv2d/Conv2D/Conv2DBackpropFilter, 66.7% of device time
Waiting for input 51.0%, Device busy 21.5%, Op runs on device 42.9%, 16-bit compute 66.7%, Peak memory 11.81 MiB
Do first            Run Dataset.map in parallel (about −4.16 ms per step)
177 events, 0 dropped; worker-0.xplane.pb, 1.70 MiB"""


def test_ten_lines_of_text():
    assert text.summary(payload.dashboard(fake.run())) == GOLDEN


def test_text_of_a_run_without_steps_says_so():
    lines = text.summary(payload.dashboard(fake.run(steps=0))).splitlines()
    assert lines[0].startswith("nbprof · run 7 · no steps")
    assert lines[1] == "Unknown: no steps were found, so step time is unknown"
    assert lines[2].startswith("Average step        –, no steps")


def test_a_notice_takes_a_line_and_ten_stay_ten():
    run = fake.run()
    run.receipt.skip("were dropped by the recorder", 5, key="test")
    lines = text.summary(payload.dashboard(run)).splitlines()
    assert len(lines) == 10
    assert lines[2].startswith("Note: 5 of 182 events were dropped.")


def test_a_name_cannot_add_lines_or_turn_the_writing_direction():
    run = fake.run()
    run.source.name = "run\n7\u202e\x1b[31m"
    assert text.summary(payload.dashboard(run)).splitlines()[0].startswith("nbprof · run 7 [31m ·")


@pytest.mark.parametrize(
    "said", ["AVATAR To. fi", "12.5 % · ±0.44", "Confidence: high", "", "é", "wörld/Conv2D…"]
)
def test_a_line_is_as_wide_as_the_font_says(said):
    sheet = canvas.Canvas(10, 10)
    for size in (20, 25, 42):
        width = canvas.font(size * 0.75).getlength(canvas.printable(said)) / 0.75
        assert sheet.measure(said, size) == sheet.text(0, 0, said, size) == width


@pytest.mark.parametrize(
    "changes",
    [{}, {"device": False, "steps": 300}, {"steps": 0}, {"steps": 1}],
    ids=["gpu", "cpu", "no steps", "one step"],
)
def test_the_picture_opens_and_is_small(changes):
    data = picture.png(payload.dashboard(fake.run(**changes)))
    with Image.open(BytesIO(data)) as image:
        image.load()
        assert image.format == "PNG"
        assert image.width == 1050
        assert 500 < image.height < 2400
        colours = {colour for _, colour in image.convert("RGB").getcolors(100_000)}
    assert len(data) < 120_000
    assert (255, 255, 255) in colours


def test_the_picture_of_a_plain_trace_has_no_figures(tmp_path, monkeypatch):
    file = tmp_path / "plain.json"
    file.write_text(
        json.dumps(
            {
                "traceEvents": [
                    {"ph": "X", "name": "work", "pid": 1, "tid": 1, "ts": 10 * i, "dur": 8}
                    for i in range(9)
                ]
            }
        )
    )
    words = []
    drawn = canvas.Canvas.text

    def text(sheet, x, y, said, *args, **options):
        words.append(said)
        return drawn(sheet, x, y, said, *args, **options)

    monkeypatch.setattr(canvas.Canvas, "text", text)
    picture.png(payload.dashboard(load(file).run))
    assert "Holds" in words
    assert "9 events on 1 lane of 1 process" in words
    assert not {"Average step", "Eager ops", "Next steps"} & set(words)


def test_the_picture_has_the_colours_of_the_categories():
    with Image.open(BytesIO(picture.png(payload.dashboard(fake.run())))) as image:
        counts = {colour: count for count, colour in image.convert("RGB").getcolors(100_000)}

    def pixels(red, green, blue):
        return sum(
            n
            for (r, g, b), n in counts.items()
            if abs(r - red) + abs(g - green) + abs(b - blue) < 24
        )

    assert pixels(0xCF, 0x4A, 0x1A) > pixels(0x23, 0x89, 0x6A) > 5000  # input over device compute


def test_a_first_step_that_compiles_does_not_flatten_the_graph():
    assert picture.scale([900.0, *[6.0] * 30]) == (8.0, True)
    assert picture.scale([5.0, 6.0, 7.5]) == (8.0, False)
    assert picture.scale([0.0]) == (1.0, False)
    assert picture.scale([0.031, 0.032]) == (pytest.approx(0.04), False)


def test_text_is_drawn_in_characters_that_the_font_has():
    assert canvas.printable("5 µs − 3 × é → …") == "5 us - 3 x e > …"
    assert canvas.printable("层/conv") == "?/conv"


@pytest.mark.parametrize(
    ("value", "digits", "said"),
    [
        (6.2, 2, "6.20"),
        (1234.5, 1, "1,234.5"),
        (-2.6, 1, "−2.6"),
        (-0.01, 1, "0.0"),
        (None, 1, "–"),
        (float("nan"), 1, "–"),
        (float("inf"), 0, "–"),
    ],
)
def test_numbers(value, digits, said):
    assert wording.number(value, digits) == said


def test_parts_and_sizes():
    assert [wording.percent(x) for x in (61.04, 0.0, 0.01, None)] == [
        "61.0%",
        "0.0%",
        "< 0.1%",
        "–",
    ]
    assert wording.percent(0.3, 0) == "< 1%"
    assert [wording.size(x) for x in (0, 900, 2560, 12_383_488, 2**34, None)] == [
        "0 B",
        "900 B",
        "2.5 KiB",
        "11.81 MiB",
        "16.00 GiB",
        "–",
    ]
    assert (wording.size(3 * 2**40), wording.size(-2560)) == ("3.00 TiB", "−2.5 KiB")
    seconds = (0.13, 0.9999, 1.26, 59.94, 59.96, 185, 7500.9, None)
    texts = ["130 ms", "1.0 s", "1.3 s", "59.9 s", "1 min 00 s", "3 min 05 s", "2 h 05 min", "–"]
    assert [wording.duration(value) for value in seconds] == texts


def test_long_names_keep_their_tail():
    name = "gradient_tape/sequential/conv2d/Conv2D/Conv2DBackpropFilter"
    assert wording.tail(name, 40) == "…/conv2d/Conv2D/Conv2DBackpropFilter"
    assert (
        wording.tail("aten::native::vectorized_elementwise_kernel", 32)
        == "…vectorized_elementwise_kernel"
    )
    assert wording.tail("x" * 60, 20) == "…" + "x" * 19
    assert wording.tail("short") == "short"


def test_kernels_lose_namespaces_and_arguments_but_keep_template_arguments():
    name = "void cudnn::ops::pool_kernel<__half, (cudnnNan_t)0>(float*, int)"
    assert wording.kernel(name) == "pool_kernel<__half, (cudnnNan_t)0>"
    assert wording.kernel("void (anonymous namespace)::k<int>(int)") == "k<int>"
    assert wording.kernel("volta_sgemm_128x64_nn") == "volta_sgemm_128x64_nn"


def test_marked_text():
    assert wording.bold_parts("a **b** c") == [(False, "a "), (True, "b"), (False, " c")]
    assert wording.bold_parts("2 ** 3") == [(False, "2 ** 3")]
    assert wording.plain("**61%** of **x") == "61% of **x"
