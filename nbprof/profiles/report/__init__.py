"""How a profile is shared: the output of a cell, and a page to send to someone."""
