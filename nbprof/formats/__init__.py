"""File formats, one folder each; none of them knows what a name in a profile means."""
