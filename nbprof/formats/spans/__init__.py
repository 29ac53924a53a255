"""Spans in CSV."""
