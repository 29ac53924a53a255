"""The file that nbprof writes next to its recordings: its name, and notes that readers look for."""

SIDECAR = "nbprof.json"

BATCHES_OF_KERAS = "batches of Keras"
"""Origin of steps if Keras ran the loop."""
KERAS_STEPS = "keras_steps"
"""Key of the note on the steps of a recording if Keras ran the loop."""
ALLOCATIONS_NOT_RECORDED = "allocations_not_recorded"
"""Key of the note on allocations that were left out in favour of all threads."""
