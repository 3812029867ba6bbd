"""The service: processes, Kafka, Spark and HTTP around the engine."""

from service.home import settle_caches

settle_caches()
