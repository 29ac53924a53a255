"""What is in a compiled program? XLA's HLO: its instructions, shapes, buffers, categories and
costs, whoever recorded it.
"""
