"""What a model says about a name, about questions, and about a document: rows to forget that nobody has to write."""
