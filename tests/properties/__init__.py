"""Properties: whatever the data, the cuts and the workers, the product's answers are the oracle's."""
