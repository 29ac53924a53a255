"""What every room needs: errors, the Trace, nesting of events, wire formats, source files. Imports nothing else of nbprof."""
