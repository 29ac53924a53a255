"""What do the bytes say? One folder per file format; none of them knows what a name means."""
