"""Encryption at rest: the master key, the key folder, and sealing of payloads and files."""
