"""Memory by allocator, and of compiled programs."""
