"""Episodes and evidence of a knowledge base; correcting, undoing and purging what it holds."""
