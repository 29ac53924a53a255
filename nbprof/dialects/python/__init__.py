"""Recordings of Python without a framework, by nbprof itself."""
