"""Record a Python program as it is: a script or a module, run as `python` runs it."""
