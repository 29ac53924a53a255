"""The time of compiled programs as a tree."""
