"""Context windows: relevance, salience, goals, contradictions and capacity."""
