"""What follows? One module a tool; each knows the activity tables only."""
