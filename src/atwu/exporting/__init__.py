"""Export of a finished run to another format, with a check that it still has forgotten."""

EXPORT_FORMATS = ("safetensors", "adapter", "4bit", "8bit", "gguf")
