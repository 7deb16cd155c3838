"""Models: loading, forward passes, decoding, adapters and quantization."""
