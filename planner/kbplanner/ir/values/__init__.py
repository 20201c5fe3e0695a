"""Constants and what is computed of them: numbers, texts, patterns and instants."""
