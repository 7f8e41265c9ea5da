"""Sides: loading a target, exporting it, and running one case on torch, on torch in float64, and on ONNX Runtime.

The idea: what is loaded once (`load`), what is made once per twin (`export`, in a process of its own), and what runs
for every case (`torch_side`, `ort_side`, bound together by `pair`) are separate steps joined by records.
"""
