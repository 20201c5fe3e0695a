"""Receipts: signed bundles of facts, rules and proofs, and their verification."""
