"""Files of AMD's rocprofv3: JSON, tables in CSV, and rocpd's databases."""
