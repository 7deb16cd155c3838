"""Ways to ask for what a row says: its own question, other wordings, after demonstrations, adversarially."""
