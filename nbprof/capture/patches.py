"""Replace attributes of classes of other packages during a recording, and restore them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any


class Patches:
    """Remembers the replaced attributes, and restores exactly these."""

    def __init__(self) -> None:
        self._replaced: list[tuple[Any, str, Any, Any, bool]] = []
        self._actions: list[Callable[[], object]] = []

    def on_restore(self, action: Callable[[], object]) -> None:
        """Call `action` at the end, for other changes, such as a hook of a framework."""
        self._actions.append(action)

    def replace(self, owner: Any, name: str, replacement: Any) -> None:
        """Put `replacement` at ``owner.name``.

        An attribute that a class inherits is given back to the parent at the end, not copied down.
        """
        in_owner = name in vars(owner)
        original = vars(owner)[name] if in_owner else None
        setattr(owner, name, replacement)
        self._replaced.append((owner, name, original, replacement, in_owner))

    def restore(self) -> None:
        """Restore everything, last first.

        An attribute that has been wrapped since is left in place: removing ours would break that
        wrapper, and ours passes calls through.
        """
        while self._actions:
            self._actions.pop()()
        while self._replaced:
            owner, name, original, replacement, in_owner = self._replaced.pop()
            if vars(owner).get(name) is not replacement:
                continue
            if in_owner:
                setattr(owner, name, original)
            else:
                delattr(owner, name)
