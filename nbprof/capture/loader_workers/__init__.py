"""What happens in the worker processes of loaders: timed there, reported through files."""
