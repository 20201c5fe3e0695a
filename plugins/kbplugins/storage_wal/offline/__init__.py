"""Operations on a log folder that no process has open."""
