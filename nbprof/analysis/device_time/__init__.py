"""Time of devices, and the causes of their waits."""
