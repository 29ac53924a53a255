"""What does everyone need? Errors, the Trace, nesting of events, wire formats, files. Of nbprof it
imports only the compiled readers.
"""
