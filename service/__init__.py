"""The service: processes, Kafka, Spark and HTTP around the engine."""

from vernier.service.toolchain.home import settle_caches

settle_caches()
