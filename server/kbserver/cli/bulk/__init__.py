"""Commands of bulk runs."""
