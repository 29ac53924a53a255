"""PyTorch's caching allocator: segments, blocks, what is stranded, why memory ran out."""
