"""Running operators, by family."""
