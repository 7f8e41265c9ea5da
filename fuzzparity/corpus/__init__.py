"""Keep cases and findings in one SQLite file."""
