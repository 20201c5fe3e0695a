"""Formats of files for tables of facts: Parquet through DuckDB, Arrow IPC through pyarrow."""
