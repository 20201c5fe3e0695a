"""What-if: scopes forked, compared and merged."""
