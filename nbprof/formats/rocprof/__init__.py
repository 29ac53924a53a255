"""What AMD's rocprofv3 writes: JSON, tables in CSV, and rocpd's databases."""
