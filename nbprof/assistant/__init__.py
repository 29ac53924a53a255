"""How does an assistant read a profile? A Model Context Protocol server, and a skill that says how
to use it.
"""

NO_SDK = 'The server needs the Model Context Protocol SDK, version 2: pip install "nbprof[mcp]"'
