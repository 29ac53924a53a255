"""How a profile travels: the output of a cell, the page to send to someone."""
