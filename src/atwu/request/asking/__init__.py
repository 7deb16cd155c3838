"""What a model says about a name, about questions, and about a document: forget rows that nobody has to write."""
