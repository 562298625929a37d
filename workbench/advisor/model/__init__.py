"""Advice on a user's ONNX model: the variants that race, and why one of them wins."""
