"""Results computed from the activity tables alone, one folder per question."""
