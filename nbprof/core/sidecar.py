"""What the file is called that nbprof writes beside those that it recorded."""

SIDECAR = "nbprof.json"
