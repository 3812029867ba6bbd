"""The service: everything around the engine, that is processes, Kafka, Spark and HTTP. Its rooms (packages):

* cli: the `vernier` command
* client: the Python client of the HTTP interface
* cluster: the worker processes of an epoch and the exchange between them
* codec: text forms of data times and of Arrow columns as JSON
* config: settings, programs, and how memory and cores are divided
* coordinator: the driver process, which commits epochs
* files: files of updates and changes, and the scratch folder
* ingest: Kafka messages become updates with data times
* kafka: the service's own Kafka clients, dead-letter queues, the embedded broker
* kernels: compiled loops over bytes
* local: a program in a notebook's own process
* observability: logs, metrics, progress of long work
* replay: runs a program on files instead of on a service
* sidecar: the HTTP server, a process that only reads state
* sinks: the publisher process, which writes views to Kafka, files, databases and addresses
* spark_source: the Spark data source, for views as DataFrames
* sql: programs in SQL: Catalyst plans their queries
* status: files by which the processes report and request things
* supervision: starts the service's processes and restarts those that die
* toolchain: Java, jars, packages and compiled kernels on this machine
* views: reads views at committed epochs
"""

from vernier.service.toolchain.home import settle_caches

settle_caches()
