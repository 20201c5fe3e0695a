"""Tools for authors of rule files: the formatter and test blocks."""
