"""What does it mean? The dialect of each producer turns its Trace into the activity tables."""
