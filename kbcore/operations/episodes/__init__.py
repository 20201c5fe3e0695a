"""Episodes and evidence of a knowledge base; correcting and purging what it holds."""
