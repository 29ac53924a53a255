"""Sampling: record workers that run elsewhere, through the profiler server of their framework.

Nothing is imported here; gRPC is imported when the first worker is asked.
"""
