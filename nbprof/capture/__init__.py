"""Record a run: from a cell, a block or a step range to a folder that TensorBoard can open too.

Nothing is imported here: opening a profile asks only how it was recorded, and a session brings half of asyncio along.
"""
