"""Shareable forms of a profile: the output of a cell, and a page to send to someone."""
