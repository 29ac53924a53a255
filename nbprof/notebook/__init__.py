"""How do users record from a cell? The magics, the recorded cell, its live status."""
