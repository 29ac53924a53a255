"""Roles of memory: the words of `p.memory.roles`, and where a recording says what its
tensors are.
"""

PARAMETERS = "parameters"
BUFFERS = "buffers"
GRADIENTS = "gradients"
OPTIMIZER_STATE = "optimizer state"
ACTIVATIONS = "activations"
INPUTS = "inputs"
TEMPORARIES = "temporaries"
COMMUNICATION = "communication"
KV_CACHE = "KV cache"
UNKNOWN = "unknown"
RESERVED = "reserved, not allocated"
ARGUMENTS = "arguments"
OUTPUTS = "outputs"
CONSTANTS = "constants"

IN_USE = (
    PARAMETERS,
    BUFFERS,
    OPTIMIZER_STATE,
    GRADIENTS,
    ACTIVATIONS,
    INPUTS,
    TEMPORARIES,
    COMMUNICATION,
    KV_CACHE,
    UNKNOWN,
)
"""Roles of memory in use, which add up to it; in the order in which they are stacked."""

OF_PROGRAMS = (ARGUMENTS, OUTPUTS, CONSTANTS, TEMPORARIES)
"""Roles of the memory of a compiled program, which add up to its peak."""

NOT_RECORDED = "allocations were not recorded"
USE_UNKNOWN = "the use of the recorded allocations is unknown"
"""Why a run has no memory by role."""

TENSORS = "nbprof_tensors"
"""Key of the metadata of a PyTorch trace, and of a fact in a file of TensorFlow: the tensors of
models and optimizers that were alive when the recording ended, and of PyTorch the gradients then
and at the end of some optimizer steps, and the keys and values that a model has cached after each
token that it generated.

`tensors`: lists of role, type and number of the device, address and bytes of the storage.
`gradients` and `caches`: lists of Unix time in ns and position in `sets`; a set has lists of type
and number of the device, address and bytes.
"""
