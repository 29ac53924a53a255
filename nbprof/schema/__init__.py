"""What is in each public frame? Every column once: its type, unit, label and meaning.

Table headers, tooltips, docs and tests follow from it.
"""
