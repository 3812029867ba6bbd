"""Compiled inner loops of the operators: numpy and numba only, one file per job."""
