"""Data: read rows from any source, encode, pair and pad them."""
