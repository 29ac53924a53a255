"""Recording of the worker processes of loaders, from inside them."""
