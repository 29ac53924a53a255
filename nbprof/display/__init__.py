"""Which words, colours and containers are shared by everything that is drawn? It knows no run and
no tool.
"""
