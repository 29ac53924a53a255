"""What does everyone need? Errors, the Trace, nesting of events, wire formats, files. Imports
nothing else of nbprof.
"""
