"""Planted twins: models whose ONNX twin is wrong in one known way, or in none, to measure what a search finds."""
