"""Finding stored facts by words (BM25) and by vectors."""
