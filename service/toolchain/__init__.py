"""Finds or makes what the service needs on a machine: Python packages, Java, Kafka's jars, compiled kernels.

In: lock files, an installed Java, the network.
Out: `.venv`, `.jars`, kernel caches and JVM command lines. A checkout gets them from `make setup`, an installed package
at its first use.
Read first: install.py for `make setup`, first_use.py for an installed package, jvm.py for starting Spark's JVM.
"""
