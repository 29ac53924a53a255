"""Several hosts beside each other: who is slow, at what, and is it more than chance? All of it from
frames of each host alone.
"""
