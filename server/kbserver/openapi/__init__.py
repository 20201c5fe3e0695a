"""The OpenAPI document: made of what the routes say about themselves, with examples that really happened."""
