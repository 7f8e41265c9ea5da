"""Make cases: contract, shapes, values, mutators, feedback."""
