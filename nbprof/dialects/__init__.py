"""What does it mean? Each module turns the Trace of one producer into the activity tables."""
