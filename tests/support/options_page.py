"""What is built from the declarations of options: tables in docs/capture.md, JupyterLab's settings,
and the settings as TypeScript.

To write them anew: `python -m tests.support.options_page`.
"""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

from nbprof.capture.option_field import Declared, declared, sentence
from nbprof.capture.options import Options
from nbprof.capture.remote.sampling import Sampling
from nbprof.notebook.cell import Show

ROOT = Path(__file__).resolve().parents[2]
PAGE = ROOT / "docs" / "capture.md"
SCHEMA = ROOT / "schema" / "plugin.json"
TYPESCRIPT = ROOT / "js" / "lab" / "options.gen.ts"
_TYPESCRIPT = {"boolean": "boolean", "integer": "number", "number": "number", "string": "string"}
_ARRAY = re.compile(r"\[\s+([^\]]*?)\s+\]")
_NO_OPTIONS = ("lanes", "scheduler", "colours")
"""Settings of the page and of the server."""


def files() -> dict[Path, str]:
    """Each generated file, and its text."""
    return {PAGE: _page(), SCHEMA: _schema(), TYPESCRIPT: _typescript()}


def _page() -> str:
    text = PAGE.read_text()
    recording = [
        *(_row(each, "") for each in declared(Show)),
        *(_row(each, _in_python(each)) for each in declared(Options)),
    ]
    recording.append("| `-h`, `--help` | | | Shows the options and runs nothing. |")
    text = _between(
        text,
        "options",
        [
            "| `%%nbprof` | `nbprof.profile`, `nbprof.start`, `nbprof.keras.Callback` | Default | |",
            *recording,
        ],
    )
    sample = [_row(each, f"`{each.name}`") for each in declared(Sampling)]
    return _between(
        text,
        "options of a sample",
        ["| `%nbprof capture` | `nbprof.capture` | Default | |", *sample],
    )


def _between(text: str, name: str, rows: list[str]) -> str:
    begin, end = f"<!-- {name}: made of their declarations -->\n", f"<!-- end of {name} -->\n"
    before, rest = text.split(begin)
    head, *others = rows
    return (
        before
        + begin
        + "\n".join([head, "|---|---|---|---|", *others])
        + "\n"
        + end
        + rest.split(end)[1]
    )


def _row(each: Declared, python: str) -> str:
    names = [name for name in (each.option.short, each.flag, each.negation) if name]
    if not each.is_flag:
        names[-1] += f" {each.option.metavar}"
    what = sentence(each.option.help) + (
        f" {sentence(each.option.more)}" if each.option.more else ""
    )
    flags = ", ".join(f"`{name}`" for name in names)
    return f"| {flags} | {python} | {_default(each)} | {what} |"


def _default(each: Declared) -> str:
    if each.option.default:
        undo = f" (`{each.flag} {each.option.undo}`)" if each.option.undo else ""
        return f"{each.option.default}{undo}"
    return "" if each.value in (None, "") else f"`{each.value}`"


def _in_python(each: Declared) -> str:
    reason = (
        f" (not the callback: {each.option.not_in_callback})" if each.option.not_in_callback else ""
    )
    return f"`{each.name}`{reason}"


def _settings() -> list[Declared]:
    """The options that JupyterLab's settings have."""
    return [
        each for cls in (Options, Show) for each in declared(cls) if each.option.setting is not None
    ]


def _key(each: Declared) -> str:
    return re.sub(r"-(\w)", lambda found: found[1].upper(), each.flag[2:])


def _property(each: Declared) -> dict[str, Any]:
    setting = each.option.setting
    assert setting is not None
    default = each.value if setting.unset is None else setting.unset
    if each.is_flag:
        kind = "boolean"
    elif each.option.type is float:
        kind = "number"
    else:
        kind = "integer" if isinstance(default, int) else "string"
    note = f" {setting.note}" if setting.note else ""
    return {
        "title": setting.title,
        "description": f"{sentence(f'{each.option.help}{_unset(each, default)} ({each.flag})')}{note}",
        "type": kind,
        **({"enum": list(each.option.choices)} if each.option.choices else {}),
        **setting.limits,
        "default": default,
    }


def _unset(each: Declared, default: object) -> str:
    """What the default of a setting stands for, where it does not say it."""
    says_it = isinstance(default, int) and f"{default:,}" == each.option.default
    if not each.option.default or says_it:
        return ""
    return f"; {default if default != '' else 'empty'}: {each.option.default}"


def _schema() -> str:
    """The schema as it is, with the options made anew in front of the settings that are no
    options.
    """
    schema = json.loads(SCHEMA.read_text())
    options = {_key(each): _property(each) for each in _settings()}
    schema["properties"] = options | {name: schema["properties"][name] for name in _NO_OPTIONS}
    text = json.dumps(schema, indent=2, ensure_ascii=False)
    # Arrays on one line, as Biome writes them.
    return _ARRAY.sub(lambda found: f"[{' '.join(found[1].split())}]", text) + "\n"


def _typescript() -> str:
    """Types and defaults of the settings that are options, and the flags that they stand for."""
    properties = {_key(each): (_property(each), each) for each in _settings()}
    types = [f"  {name}: {_TYPESCRIPT[value['type']]};" for name, (value, _) in properties.items()]
    defaults = [
        f"  {name}: {_literal(value['default'])}," for name, (value, _) in properties.items()
    ]
    flags = [f"  {name}: {json.dumps(each.flag)}," for name, (_, each) in properties.items()]
    return "\n".join(
        [
            "/** The options of a recording among the settings. Made of their declarations: python -m tests.support.options_page */",
            "",
            "export interface Options {",
            *types,
            "}",
            "",
            "export const OPTIONS: Readonly<Options> = {",
            *defaults,
            "};",
            "",
            "/** The option of `%%nbprof` that each stands for. */",
            "export const FLAGS: Readonly<Record<keyof Options, string>> = {",
            *flags,
            "};",
            "",
        ]
    )


def _literal(value: object) -> str:
    return f"{value:_}" if type(value) is int and value >= 10_000 else json.dumps(value)


if __name__ == "__main__":
    for path, text in files().items():
        path.write_text(text)
