"""Say what is known: text, tables, reproducer folders."""
