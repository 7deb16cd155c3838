"""The rules of the offline judge: what counts as the fact of a reference, and how an answer stands to it."""
