"""Find the variables, outputs, tracebacks and the like that keep arrays alive."""
