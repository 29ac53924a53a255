"""Where are the files, and which of them form a run? Paths, archives, URLs and logdirs."""
