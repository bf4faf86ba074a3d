"""Policies as files: bundles, ONNX graphs, recorded episodes, tables of observations."""
