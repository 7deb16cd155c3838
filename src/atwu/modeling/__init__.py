"""Models: loading, forward passes, generation, adapters, quantization and GGUF files."""
