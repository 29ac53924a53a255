"""What follows? Answers out of the activity tables alone: a folder a question."""
