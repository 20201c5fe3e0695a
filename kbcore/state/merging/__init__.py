"""Scopes: forking, comparing and merging the facts of two of them."""
