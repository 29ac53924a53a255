"""The dialect of recordings of AMD's rocprofv3."""
