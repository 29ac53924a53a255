"""What a person holds: `nbprof.profiles.profile.Profile` is made of these parts, one a family of faces."""
