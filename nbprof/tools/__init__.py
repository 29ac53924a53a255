"""What is in each tab of the dashboard? One folder per tab, with everything but the analysis: the
counterpart of `js/views`.
"""
