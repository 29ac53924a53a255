"""Recording of what is compiled while a cell runs, and why, by the frameworks' own accounts."""

JAX = "jax._src.api"
TORCH = "torch._dynamo.utils"
TENSORFLOW = "tensorflow.python.eager.polymorphic_function.tracing_compilation"
MODULES = (JAX, TORCH, TENSORFLOW)
"""Modules with the compilers' hooks, which a cell may import."""
