"""Relevance of stored facts to the query of a window, by words and by meaning."""
