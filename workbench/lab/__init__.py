"""The model lab: a user's ONNX model in every form worth racing (`advise --model`)."""
