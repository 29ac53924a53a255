"""Which frames does this profile have? `nbprof.run.run.Run` is made of these parts, one a family of frames."""
