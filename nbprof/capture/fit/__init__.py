"""Will a program fit in the memory of a device? Its peak is predicted before it runs."""
