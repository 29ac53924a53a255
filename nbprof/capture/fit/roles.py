"""The roles of memory in a program that trains or infers, in the order of tables."""

from __future__ import annotations

from enum import Enum


class Role(Enum):
    """Roles of memory; the value is the name on screen."""

    ARGUMENTS = "arguments"
    PARAMETERS = "parameters"
    BUFFERS = "buffers"
    GRADIENTS = "gradients"
    OPTIMIZER_STATE = "optimizer state"
    INPUTS = "inputs"
    ACTIVATIONS = "activations"
    OUTPUTS = "outputs"
    TEMPORARIES = "temporaries"
    PADDING = "padding"
    CODE = "program code"
