"""Whole studies: methods x settings x seeds from one file, planned, run, resumed and set beside published results."""
