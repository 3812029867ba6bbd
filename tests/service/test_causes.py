"""The one line out of what Spark says when it fails. The texts are Spark's own, with fewer frames."""

import pytest

from vernier.service.coordinator.session import cause_of

ABORTED = (
    "An error occurred while calling o94.count.\n: org.apache.spark.SparkException: Job aborted due to stage failure: "
)
BARRIER = (
    f"{ABORTED}Could not recover from a failed barrier ResultStage. Most recent failure reason: Stage failed because "
    "barrier task ResultTask(0, 0) finished unsuccessfully.\n"
)
DRIVER = "\tat org.apache.spark.scheduler.DAGScheduler.$anonfun$abortStage$3(DAGScheduler.scala:3318)\n"
FRAME = "\tat org.apache.spark.api.python.BasePythonRunner$ReaderIterator.hasNext(PythonRunner.scala:602)\n"
CRASHED = (
    "org.apache.spark.SparkException: Python worker exited unexpectedly (crashed). Consider setting "
    "'spark.sql.execution.pyspark.udf.faulthandler.enabled' or'spark.python.worker.faulthandler.enabled' "
    f"configuration to 'true' for the better Python traceback.\n{FRAME}"
    "Caused by: java.io.EOFException\n"
    "\tat java.base/java.io.DataInputStream.readInt(DataInputStream.java:386)\n"
    f"\t... 19 more\n\n{DRIVER}"
)
RAISED = (
    "org.apache.spark.api.python.PythonException: [PYTHON_EXCEPTION] An exception was thrown from the Python worker: "
    "Traceback (most recent call last):\n"
    '  File "program.py", line 19, in pour\n'
    '    raise ValueError("the cup is empty")\n'
    "ValueError: the cup is empty\n"
    f" SQLSTATE: 38000\n{FRAME}\n{DRIVER}"
)
AGAIN = RAISED.replace(
    "ValueError: the cup is empty\n",
    "KeyError: 'cup'\n\n"
    "During handling of the above exception, another exception occurred:\n\n"
    "Traceback (most recent call last):\n"
    '  File "program.py", line 21, in pour\n'
    "MemoryError\n",
)
LOST = "ExecutorLostFailure (executor 2 exited caused by one of the running tasks) Reason: worker lost\n"
FULL = (
    "org.apache.spark.SparkException: Task failed while writing rows\n"
    f"{FRAME}Caused by: java.io.IOException: No space left on device\n\t... 7 more\n{DRIVER}"
)
CANCELLED = (
    "An error occurred while calling o148.count.\n"
    ": org.apache.spark.SparkException: [SPARK_JOB_CANCELLED] Job 3 cancelled as part of cancellation of all jobs "
    f"SQLSTATE: XXKDA\n{DRIVER}"
)

OF_A_FUTURE = (
    "An error occurred while calling o303.get.\n: java.util.concurrent.ExecutionException: Exception thrown by job\n"
    "\tat org.apache.spark.JavaFutureActionWrapper.getImpl(FutureAction.scala:284)\n"
    "Caused by: org.apache.spark.SparkException: Job aborted due to stage failure: "
)


@pytest.mark.parametrize(
    ("text", "cause"),
    [
        (BARRIER + CRASHED, "org.apache.spark.SparkException: Python worker exited unexpectedly (crashed)."),
        (BARRIER + RAISED, "ValueError: the cup is empty"),
        ((BARRIER + RAISED).replace(ABORTED, OF_A_FUTURE), "ValueError: the cup is empty"),
        (BARRIER + AGAIN, "MemoryError"),
        (BARRIER + LOST + DRIVER, LOST.strip()),
        (BARRIER + FULL, "java.io.IOException: No space left on device"),
        (f"{ABORTED}Task 0 in stage 1.0 failed 1 times, most recent failure: Lost task 0.0: {RAISED}",
         "ValueError: the cup is empty"),
        (CANCELLED, CANCELLED.splitlines()[1].removeprefix(": ")),
        ("py4j has closed the connection", "py4j has closed the connection"),
        ("", "RuntimeError"),
    ],
)  # fmt: skip
def test_the_cause_is_named(text: str, cause: str) -> None:
    assert cause_of(RuntimeError(text)) == cause
