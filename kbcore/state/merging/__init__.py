"""Fork, comparison and merge of scopes."""
