"""What devices did with their time, and what they waited for."""
