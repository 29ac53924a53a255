"""All cells: importing this registers them."""

from __future__ import annotations

import in_jax  # noqa: F401
import in_python  # noqa: F401
import in_tensorflow  # noqa: F401
import in_torch  # noqa: F401
import unseen  # noqa: F401
