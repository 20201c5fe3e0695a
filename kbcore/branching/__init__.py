"""What-if scopes: fork, compare and merge."""
