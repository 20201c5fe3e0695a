"""Replication over HTTP: request headers and the client that reads a leader's log."""
