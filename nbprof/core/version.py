"""The version of nbprof, said once: packaging reads it from here."""

__version__ = "0.2.0"
