"""The timeline: lanes, slices and counters of a window of time, found in sorted columns."""
