"""Bulk runs: rules over Parquet files on a database that works beyond memory."""
