"""Output topics: the changes of views in Kafka, exactly once, by a process of its own."""
