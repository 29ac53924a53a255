"""How devices spent their time, and what they waited for."""
