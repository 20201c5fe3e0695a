"""Authentication, permissions, rate limits, the audit log and redaction."""
