#!/bin/bash
# Spark's executor in a pod of Kubernetes: Spark has put what it needs into the environment. The connector's archives are
# in the image, so executors fetch none from the driver.
set -eu
home=$(echo /opt/vernier/venv/lib/python3*/site-packages/pyspark)
home=${SPARK_HOME:-$home}
# SPARK_JAVA_OPT_0, _1 …, in the order of their numbers; a value has no line breaks
mapfile -t options < <(env | sed -n 's/^SPARK_JAVA_OPT_\([0-9]*\)=/\1 /p' | sort -n | cut -d' ' -f2-)
classes=$home/jars/*:$VERNIER_JARS_DIR/spark/*
if [ -n "${SPARK_CLASSPATH:-}" ]; then classes=$SPARK_CLASSPATH:$classes; fi
exec "$JAVA_HOME/bin/java" "${options[@]}" "-Xms$SPARK_EXECUTOR_MEMORY" "-Xmx$SPARK_EXECUTOR_MEMORY" -cp "$classes" \
  org.apache.spark.scheduler.cluster.k8s.KubernetesExecutorBackend \
  --driver-url "$SPARK_DRIVER_URL" --executor-id "$SPARK_EXECUTOR_ID" --cores "$SPARK_EXECUTOR_CORES" \
  --app-id "$SPARK_APPLICATION_ID" --hostname "$SPARK_EXECUTOR_POD_IP" \
  --resourceProfileId "$SPARK_RESOURCE_PROFILE_ID" --podName "$SPARK_EXECUTOR_POD_NAME"
