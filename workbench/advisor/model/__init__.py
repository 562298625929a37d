"""The advice for a user's ONNX model: which forms race, and why one of them wins."""
