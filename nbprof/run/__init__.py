"""Which frames does this profile have? See `nbprof.run.run.Run`."""
