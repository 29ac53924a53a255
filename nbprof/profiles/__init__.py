"""What does a person hold? A `Profile` or a `Comparison`: frames to work with, widgets to look at, a report to share."""
