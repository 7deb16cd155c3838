"""Whole studies: methods x scales x seeds from one file, planned, run, resumed and set beside published results."""
