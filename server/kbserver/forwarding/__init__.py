"""Requests for another process, and calls between processes: of the workers of a server, of the
nodes of a cluster.
"""
