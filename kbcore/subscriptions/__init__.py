"""Standing goals: goals whose answers are kept current, change by change."""
