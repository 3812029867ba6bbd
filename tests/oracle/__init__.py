"""A slow, obviously right reference for the answers of standing queries. It imports nothing of the product."""
