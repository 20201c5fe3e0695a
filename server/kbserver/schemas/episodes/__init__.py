"""Bodies and answers about episodes, and about correcting, undoing and purging."""
