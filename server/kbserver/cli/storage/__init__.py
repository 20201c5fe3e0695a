"""Commands on backups and storage folders."""
