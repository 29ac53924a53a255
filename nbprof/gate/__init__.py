"""Did a change make the run worse? Expectations, baselines and the pytest plugin."""
