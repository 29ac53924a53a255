"""GPU kernels: all of it that is not analysis."""
