"""The one vocabulary: tables of what a program did, whoever recorded it. Dialects fill them, analysis reads them."""
