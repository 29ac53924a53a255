"""What do the bytes of a Riegeli file say? A container of records, read by our own code: the
packings alone need a library.
"""

SIGNATURE = bytes.fromhex("83af70d10d884a3f0000000000000000400000000000000091bac23c9287e1a9")
"""How every file begins: the header of its first block, and the beginning of its first chunk."""
