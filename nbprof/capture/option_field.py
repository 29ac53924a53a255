"""Options declared once, as fields of a dataclass.

The parser of the magic, the arguments of the command, JupyterLab's settings, the tables of the
documentation and the docstrings are built from these declarations. To add an option, add a field,
and renew the files built from it: `python -m tests.support.options_page`.
"""

from __future__ import annotations

import argparse
import inspect
import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import Field, dataclass, field, fields
from typing import Any, TypeVar

_KEY = "option"
_LINK = re.compile(r"\[([^\]]*)\]\([^)]*\)")
T = TypeVar("T")


@dataclass(frozen=True)
class Setting:
    """An option in JupyterLab's settings.

    Attributes
    ----------
    title : str
    unset : object
        The value of the setting that stands for the default, as settings have no null; None where
        the default itself does.
    limits : mapping
        Keywords of JSON Schema, such as ``minimum`` and ``pattern``.
    note : str
        A sentence behind the help.
    """

    title: str
    unset: Any = None
    limits: Mapping[str, Any] = field(default_factory=dict)
    note: str = ""


@dataclass(frozen=True)
class Option:
    """Metadata of an option besides its name, type and default.

    Attributes
    ----------
    help : str
        What it does, in all places: a phrase without a capital and a period.
    flag : str
        By default the name with hyphens.
    short : str
        A second flag of one letter.
    metavar : str
        The value in a usage line; empty for a bool.
    type : callable
        Reads the value that was typed.
    choices : tuple of str
    default : str
        The default in words, where the value does not say it.
    alone : str
        The value of the flag without one; empty where it needs one.
    undo : str
        A typed value that selects the default, to override a default option; of a bool, ``--no-…``
        does.
    negative : str
        The help of ``--no-…``; empty for a bool that cannot be turned off again.
    more : str
        A phrase for the documentation alone; it may have Markdown.
    setting : Setting, optional
        None for an option that the settings lack.
    not_in_callback : str
        Why `nbprof.keras.Callback` does not take it, as a remedy; empty where it does.
    """

    help: str
    flag: str = ""
    short: str = ""
    metavar: str = ""
    type: Callable[[str], Any] = str
    choices: tuple[str, ...] = ()
    default: str = ""
    alone: str = ""
    undo: str = ""
    negative: str = ""
    more: str = ""
    setting: Setting | None = None
    not_in_callback: str = ""


class Declared:
    """An option with its name and default."""

    def __init__(self, source: Field[Any]) -> None:
        self.name = source.name
        self.value: Any = source.default
        self.annotation = str(source.type)
        self.option: Option = source.metadata[_KEY]
        self.flag = self.option.flag or f"--{source.name.replace('_', '-')}"
        self.is_flag = isinstance(source.default, bool)

    @property
    def negation(self) -> str:
        """The flag that turns it off; empty where there is none."""
        if not self.option.negative:
            return ""
        return f"--no-{self.flag[2:]}"

    @property
    def default(self) -> str:
        """The default in words; empty where it goes without saying."""
        if self.option.default or self.is_flag or self.value in (None, ""):
            return self.option.default
        if isinstance(self.value, int):
            return f"{self.value:,}"
        return str(self.value)

    @property
    def help(self) -> str:
        """The help with the default, and how to select it."""
        if self.is_flag and self.value:
            return f"{self.option.help} (default)"
        if self.is_flag or not self.default:
            return self.option.help
        if self.option.undo in ("", self.default):
            return f"{self.option.help}; {self.default} by default"
        return f"{self.option.help}; {self.option.undo}: {self.default}"


def option(default: Any, help: str, /, **declared: Any) -> Any:
    """Declare an option: a dataclass field with a default, and keywords as of `Option`."""
    return field(default=default, metadata={_KEY: Option(help, **declared)})


def declared(cls: type[Any]) -> list[Declared]:
    """The options of a dataclass, in its order."""
    return [Declared(source) for source in fields(cls) if _KEY in source.metadata]


def add_arguments(
    parser: argparse.ArgumentParser, cls: type[Any], *, without: tuple[str, ...] = ()
) -> None:
    """Add the options of a dataclass to a parser, each under its name."""
    for each in declared(cls):
        if each.name not in without:
            _add(parser, each)


def _add(parser: argparse.ArgumentParser, each: Declared) -> None:
    names = list(filter(None, (each.option.short, each.flag)))
    if not each.is_flag:
        choices = each.option.choices or None
        read = reader(each)
        optional: dict[str, Any] = {}
        if each.option.alone:
            optional = {"nargs": "?", "const": each.option.alone}
        parser.add_argument(
            *names,
            dest=each.name,
            metavar=each.option.metavar,
            type=read,
            default=each.value,
            choices=choices,
            help=each.help,
            **optional,
        )
        return
    parser.add_argument(
        *names, dest=each.name, action="store_true", default=each.value, help=each.help
    )
    if each.negation:
        text = each.option.negative
        if not each.value:
            text += " (default)"
        parser.add_argument(each.negation, dest=each.name, action="store_false", help=text)


def reader(each: Declared) -> Callable[[str], Any]:
    """The function that reads the value of an option as it was typed."""
    kind, undo = each.option.type, each.option.undo

    def read(text: str) -> Any:
        if undo and text == undo:
            return each.value
        return kind(text)

    # For the message about a value of another type.
    read.__name__ = kind.__name__
    return read


def values(parsed: argparse.Namespace, cls: type[Any]) -> dict[str, Any]:
    """The options of a dataclass that a parser read, by name."""
    names = [field.name for field in declared(cls)]
    return {name: getattr(parsed, name) for name in names if hasattr(parsed, name)}


def documented(cls: type[T]) -> type[T]:
    """Add the section on parameters to the docstring of a dataclass of options."""
    if cls.__doc__:
        head, _, rest = inspect.cleandoc(cls.__doc__).partition("\n\n")
        section = "\n".join(["Parameters", "----------", *_parameters(cls)])
        cls.__doc__ = "\n\n".join(filter(None, (head, section, rest)))
    return cls


def _parameters(cls: type[Any]) -> Iterator[str]:
    for each in declared(cls):
        annotation = each.annotation
        if annotation.endswith(" | None"):
            annotation = f"{annotation.removesuffix(' | None')}, optional"
        yield f"{each.name} : {annotation}"
        yield f"    {sentence(each.option.help)}"
        if each.option.more:
            more = _LINK.sub(r"\1", each.option.more)
            yield f"    {sentence(more)}"
        if each.option.default:
            yield f"    By default: {each.option.default}."


def sentence(text: str) -> str:
    """Write a phrase as a sentence."""
    return f"{text[:1].upper()}{text[1:]}."
