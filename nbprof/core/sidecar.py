"""The file that nbprof writes next to its recordings: its name, and notes that readers look for."""

import re

SIDECAR = "nbprof.json"
_OF_RANK = re.compile(r"nbprof\.rank\d+\.json")


def of_rank(rank: int) -> str:
    """The name of the file about one rank of a job, beside that about the whole job."""
    return f"nbprof.rank{rank}.json"


def is_of_rank(name: str) -> bool:
    """Return whether a file is about one rank of a job."""
    return _OF_RANK.fullmatch(name) is not None


BATCHES_OF_KERAS = "batches of Keras"
"""Origin of steps if Keras ran the loop."""
KERAS_STEPS = "keras_steps"
"""Key of the note on the steps of a recording if Keras ran the loop."""
ALLOCATIONS_NOT_RECORDED = "allocations_not_recorded"
"""Key of the note on allocations that were left out in favour of all threads."""
