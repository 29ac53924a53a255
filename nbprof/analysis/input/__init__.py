"""Time of the host on input."""
