"""What msprof measured on an NPU, and what follows."""
