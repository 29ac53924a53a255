"""What is drawn of a window of time? Found on sorted columns when it is asked for."""
