"""Tests of the C engine, through its Python face and through cffi."""
