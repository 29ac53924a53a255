"""The dialect of recordings of Nsight Systems."""
