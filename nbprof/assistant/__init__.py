"""How does an assistant read a profile? A Model Context Protocol server, and a skill that says how
to use it.
"""
