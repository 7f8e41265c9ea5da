"""Blame: which part is at fault, by what arbiters say; never by rule of thumb."""
