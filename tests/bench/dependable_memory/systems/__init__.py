"""Memory systems under test; `registry.py` lists them."""
