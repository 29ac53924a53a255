"""The tabs of the dashboard: one folder a tab, with all of it that is not analysis. The twin of `js/views`."""
