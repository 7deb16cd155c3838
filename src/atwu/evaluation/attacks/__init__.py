"""Attempts to bring forgotten knowledge back: rounded weights, relearning, demonstrations, adversarial questions."""
