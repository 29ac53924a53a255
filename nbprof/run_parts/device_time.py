"""What each device did with its time."""

from __future__ import annotations

from nbprof.run_parts.base import Base


class DeviceTime(Base):
    """Frames of the time of devices: work, waits, queues, collectives, the critical path."""
