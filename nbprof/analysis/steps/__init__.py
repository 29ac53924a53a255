"""Steps, and where their time goes, by host and core."""
