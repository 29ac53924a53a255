"""Which frames does this profile have? A `Run` computes each when it is first asked for, or has it from the cache."""
