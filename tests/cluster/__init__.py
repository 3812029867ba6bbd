"""A cluster on this machine: hosts with a network each (Linux namespaces), a cable that can be cut, nothing in common
but the object store."""
