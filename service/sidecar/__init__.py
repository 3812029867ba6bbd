"""The sidecar: committed answers over HTTP, in a process of its own that only reads."""
