"""Each benchmark runs."""
