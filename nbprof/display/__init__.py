"""Which words, colours and containers does everything that is drawn share? Knows no run and no tool."""
