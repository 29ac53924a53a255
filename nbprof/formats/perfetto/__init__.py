"""Reads Perfetto traces (protobuf)."""
