"""Leader and follower: log shipping, roles, and the mark that names a log's leader."""
