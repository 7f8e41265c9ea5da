"""Wire the trades together for one finding."""
