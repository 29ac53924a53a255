"""Who wrote a trace in Chrome's format? The dialect of its producer interprets it."""
