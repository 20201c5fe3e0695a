"""Answers as tables of columns, and their encoding as an Apache Arrow stream."""
