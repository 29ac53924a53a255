"""How the Python stacks of a recording are sampled, and how much of them it stores."""

SWITCH_S = 0.001
"""How long a thread holds the GIL at most while the sampler waits for it."""
MOST_SAMPLES, MOST_ROWS = 20_000, 40_000
"""Samples, and stacks of threads in them. The sampler halves its rate when it reaches either."""
MOST_NODES = 50_000
"""Different calls in different callers."""
MOST_TEXT = 300
"""Length of the name of a file or function."""
