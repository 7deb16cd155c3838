"""Studies: methods x settings x seeds defined in one file; planned, run, resumed, and compared with published results."""
