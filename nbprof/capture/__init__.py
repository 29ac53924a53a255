"""Record a run: from a cell, a block or a step range to a folder that TensorBoard can open too."""

from nbprof.capture.recording import CaptureInfo, Recording
from nbprof.capture.session import Session

__all__ = ["CaptureInfo", "Recording", "Session"]
