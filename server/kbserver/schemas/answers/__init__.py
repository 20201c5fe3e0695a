"""Answer schemas, and answers in the shapes of the HTTP interface."""
