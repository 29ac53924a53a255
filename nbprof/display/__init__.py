"""What all that is drawn shares: words, colours, and the container in which a payload travels. Knows no run and no tool."""
