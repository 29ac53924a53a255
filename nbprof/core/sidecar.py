"""Name of the file that nbprof writes next to its recordings."""

SIDECAR = "nbprof.json"
