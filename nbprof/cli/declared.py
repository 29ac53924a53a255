"""Options of a command that are declared once for all front ends: fields of a dataclass."""

from __future__ import annotations

from collections.abc import Callable, Collection
from typing import Any, TypeVar

import click

from nbprof.capture.option_field import Declared, declared, reader, sentence

Function = TypeVar("Function", bound=Callable[..., Any])


def options(cls: type[Any], without: Collection[str] = ()) -> Callable[[Function], Function]:
    """Adds the options of a dataclass, in their order and each under its name."""

    def decorate(function: Function) -> Function:
        for each in reversed(declared(cls)):
            if each.name not in without:
                function = _option(each)(function)
        return function

    return decorate


def _option(each: Declared) -> Callable[[Function], Function]:
    names = list(filter(None, (each.option.short, each.flag)))
    help_text = sentence(each.help)
    if each.is_flag:
        if each.negation:
            names[-1] = f"{each.flag}/{each.negation}"
        return click.option(*names, each.name, is_flag=True, default=each.value, help=help_text)
    kind: Any = reader(each)
    if each.option.choices:
        kind = click.Choice(each.option.choices)
    return click.option(
        *names,
        each.name,
        type=kind,
        default=each.value,
        metavar=each.option.metavar,
        help=help_text,
    )
