"""Drawings of the documents, made from the library's own geometry: ``python -m docs.drawings``."""
