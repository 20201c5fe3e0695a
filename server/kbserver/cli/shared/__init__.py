"""Code that several commands share: the target server or folder, exit statuses and output."""
