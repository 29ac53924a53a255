"""How does a person ask in a cell? The magics, the cell that is recorded, its live status."""
