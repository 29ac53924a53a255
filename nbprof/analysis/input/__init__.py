"""Where the host spends its time on input."""
