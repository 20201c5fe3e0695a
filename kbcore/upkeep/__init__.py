"""Memory upkeep: what has expired or faded goes, what repeats itself is summed up."""
