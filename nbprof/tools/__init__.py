"""What is in each tab of the dashboard? One folder a tab, with all of it that is not analysis: the twin of `js/views`."""
