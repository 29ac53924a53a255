"""What do the bytes of a PyTorch memory snapshot say? A pickle, read without running what is in
it.
"""
