"""In which words is a run described, whoever recorded it? The activity tables: dialects fill them,
analysis reads them.
"""
