"""What do users work with? A `Profile` or a `Comparison`: frames, widgets and a report to share."""
