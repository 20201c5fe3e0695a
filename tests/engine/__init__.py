"""Tests of the C engine, through its Python interface and through cffi."""
