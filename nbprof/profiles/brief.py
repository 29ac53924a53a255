"""A profile or comparison in a few hundred words for a language model, the most important first."""

from __future__ import annotations

from collections.abc import Iterator

from nbprof.activity.unit import Unit, best
from nbprof.display import wording
from nbprof.profiles.claims import Claim, brief_of_profile, code, quoted, value_text, written
from nbprof.profiles.comparison import Comparison
from nbprof.profiles.profile import Profile
from nbprof.profiles.redaction import Redact


def brief(of: Profile | Comparison, tokens: int = 1500, *, redact: Redact = False) -> str:
    """A summary of a profile or comparison as Markdown of bounded length, most important first.

    The same profile has the same text, and a shorter brief is the beginning of a longer one. The
    last line says how many lines were left out.

    Parameters
    ----------
    of : Profile or Comparison
    tokens : int
        Maximum length in tokens of 3.5 bytes of UTF-8 each.
    redact : bool or path
        Pseudonyms instead of names, as `Profile.save` has them.

    Raises
    ------
    NbprofError
        Fewer than 200 tokens.
    """
    if isinstance(of, Comparison):
        runs = [profile.run for profile in of.profiles]
        lines = list(_comparison(of))
        return written("Comparison", lines, runs, name="c", tokens=tokens, redact=redact)
    # Also what `with nbprof.profile() as p` gives, which stands for its profile.
    return brief_of_profile(of, tokens, redact)


def _comparison(comparison: Comparison) -> Iterator[Claim]:
    row = comparison.verdict.iloc[0]
    yield Claim(
        "Verdict",
        f"{quoted(row['headline'])} [{row['verdict']}]. {quoted(row['detail'])}",
        ("c.verdict.iloc[0]",),
    )
    evidence = comparison.evidence
    for index, each in enumerate(evidence.to_dict("records")):
        if each["ok"] is not True:
            yield Claim(
                "What else differs, or is unknown",
                quoted(each["text"]),
                (f"c.evidence.iloc[{index}]",),
            )
    for index, each in enumerate(comparison.figures.to_dict("records")):
        values = [
            value_text("comparison.figures", key, each)
            for key in ("before", "after", "change_percent")
        ]
        text = f"{values[0]} → {values[1]} {each['unit']}"
        if each["unit"] == "ms":
            text = wording.millis_two(each["before"], each["after"], " → ")
        yield Claim(
            "Figures (before → after)",
            f"{each['figure']}: {text} ({values[2]})",
            (f"c.figures.iloc[{index}]",),
        )
    per = best([Unit.of(profile.overview) for profile in comparison.profiles]).per
    for index, each in enumerate(comparison.findings.to_dict("records")):
        gain = wording.millis_two(each["before_ms"], each["after_ms"], " → ")
        text = (
            f"{quoted(each['title'])} [{code(each['rule'])}]: {each['state']}; predicted gain"
            f" {gain} {per}"
        )
        yield Claim("Findings (before → after)", text, (f"c.findings.iloc[{index}]",))
    for name, key in (("kernels", "kernel"), ("ops", "op")):
        frame = getattr(comparison, name).head(5)
        for index, each in enumerate(frame.to_dict("records")):
            was, now, change = (
                wording.micros(each[figure]) for figure in ("before_us", "after_us", "change_us")
            )
            text = (
                f"{code(each[key])}: {was} → {now} ({wording.rise(change, each['change_us'])}),"
                f" {each['state']}"
            )
            yield Claim(
                f"{name.capitalize()} that changed most", text, (f"c.{name}.iloc[{index}]",)
            )
