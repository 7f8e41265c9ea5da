"""Measure latency and memory on kept cases."""
