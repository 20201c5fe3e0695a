"""Rule text and JSON rules: scanner, parser, diagnostics and printer."""
