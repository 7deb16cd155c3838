"""Ways to ask about a row: its question, paraphrases, in-context examples, adversarial questions."""
