"""Language: what people and models write, read into facts and rules."""
