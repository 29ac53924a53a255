"""Profiles made of synthetic files."""

from __future__ import annotations

from pathlib import Path

from nbprof.profiles.load import load as load_profile
from nbprof.profiles.profile import Profile


def profile(folder: Path, data: bytes, name: str = "host-a") -> Profile:
    path = folder / f"{name}.xplane.pb"
    path.write_bytes(data)
    return load_profile(path)
