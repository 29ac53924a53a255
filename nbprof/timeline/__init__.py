"""The timeline: what is drawn of a profile in a window of time, found on sorted columns when it is asked for."""
