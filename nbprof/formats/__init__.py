"""What do the bytes say? One module a file format; none of them knows what a name means."""
