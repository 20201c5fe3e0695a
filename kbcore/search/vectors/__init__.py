"""Vectors of the stored facts of a tenant: their index, the file that keeps them, and the thread
that makes them.
"""
