"""Tests of `vernier.Producer`."""
