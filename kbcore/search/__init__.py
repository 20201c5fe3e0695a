"""Full-text search of stored facts (BM25), and text embeddings."""
