"""The frames of a run, by what they are about; each family builds on those that it derives from."""
