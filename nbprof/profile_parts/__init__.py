"""What a person holds: `nbprof.profiles.Profile` is made of these parts, one a family of faces."""
