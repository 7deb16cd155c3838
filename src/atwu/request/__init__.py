"""One deletion request: from a model and the rows to forget to a model that can be shipped, and a verdict on it."""
