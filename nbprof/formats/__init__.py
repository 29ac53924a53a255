"""What do the bytes say? A folder for each file format; none of them knows what a name means."""
