"""What do recordings of GPUs have in common, whoever made them? Calls, the device work that each
launched, ops around them, steps.
"""
