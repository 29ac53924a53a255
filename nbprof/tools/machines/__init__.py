"""The tab Machines."""
