"""Facts x askings x states: which facts a model still states, how it was asked, and what it said."""
