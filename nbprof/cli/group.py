"""A group of commands that says which one may have been meant."""

from __future__ import annotations

import difflib

import click


class Group(click.Group):
    """Names the command closest to one that does not exist."""

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """The command that is called."""
        try:
            return super().resolve_command(ctx, args)
        except click.UsageError as error:
            # Recent versions of click do so for commands that are imported already.
            suggested = getattr(error, "possibilities", None)
            near = (
                [] if suggested else difflib.get_close_matches(args[0], self.list_commands(ctx), 1)
            )
            if not near:
                raise
            raise click.UsageError(
                f"{error.message.rstrip('.')}: did you mean {near[0]!r}?", error.ctx
            ) from None
