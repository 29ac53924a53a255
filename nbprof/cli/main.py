"""The entry point of the command `nbprof`."""

from __future__ import annotations

import click


@click.group()
def main() -> None:
    """Read, compare and check ML profiles."""
