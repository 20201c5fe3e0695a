"""`kbcore shell`: statements and goals typed one after the other."""
