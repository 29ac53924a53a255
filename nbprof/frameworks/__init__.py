"""Which frameworks are there? One file per framework: how it is found and recorded, and its words.
Nothing of a framework is imported.
"""
