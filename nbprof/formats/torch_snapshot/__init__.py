"""Reads memory snapshots of PyTorch: pickles, without running any code in them."""
