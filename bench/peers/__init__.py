"""The CPU executor against XNNPACK, ONNX Runtime and torch: networks (net), their files (build), engines, workers."""
