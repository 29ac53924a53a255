"""What is drawn in a time window? Found in sorted columns on request."""
