"""Make a case smaller while it stays interesting."""
