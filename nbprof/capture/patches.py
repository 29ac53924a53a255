"""Replace attributes of other people's classes for the length of a recording, and put them back."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any


class Patches:
    """Keeps what was replaced, and restores exactly that."""

    def __init__(self) -> None:
        self._kept: list[tuple[Any, str, Any, Any, bool]] = []
        self._actions: list[Callable[[], object]] = []

    def on_restore(self, action: Callable[[], object]) -> None:
        """Call `action` at the end, for what is not an attribute, as a hook that a framework
        keeps.
        """
        self._actions.append(action)

    def replace(self, owner: Any, name: str, replacement: Any) -> None:
        """Put `replacement` at ``owner.name``.

        An attribute that a class inherits is given back to the parent at the end, not copied down.
        """
        in_owner = name in vars(owner)
        original = vars(owner)[name] if in_owner else None
        setattr(owner, name, replacement)
        self._kept.append((owner, name, original, replacement, in_owner))

    def restore(self) -> None:
        """Put everything back, last first.

        What somebody else has wrapped since is left: taking it away would break their wrapper, and
        ours passes calls through.
        """
        while self._actions:
            self._actions.pop()()
        while self._kept:
            owner, name, original, replacement, in_owner = self._kept.pop()
            if vars(owner).get(name) is not replacement:
                continue
            if in_owner:
                setattr(owner, name, original)
            else:
                delattr(owner, name)
