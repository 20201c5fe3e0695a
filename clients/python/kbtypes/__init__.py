"""Plain types of knowledge bases: records, errors and values, for the core, the server and clients.

Pure Python without dependencies: the package imports only the standard library.
"""
