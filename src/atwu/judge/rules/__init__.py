"""Rules of the offline judge: find the fact of a reference, and decide whether an answer states it."""
