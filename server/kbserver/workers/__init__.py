"""Several server processes on one port: supervisor, forwarding of requests, and calls between
them.
"""
