"""Where do files lie, and which of them are a run? Paths, archives, URLs and logdirs."""
