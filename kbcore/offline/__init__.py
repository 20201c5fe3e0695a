"""Operations on storage that no process has open: check, salvage, back up, restore, migrate."""
