"""`kbcore lsp`: a language server for editors."""
