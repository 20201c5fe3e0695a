"""Language models: asked with patience and within limits, their answers read as data."""
