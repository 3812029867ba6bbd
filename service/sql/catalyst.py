"""The process that plans: reads queries from stdin, answers on stdout with Catalyst's plans. One JSON object a line.

It is a process of its own because a process has one Spark, and the one of a service's driver has other settings. It
ends when its stdin does. A request has `query`, `leaves` (by name, each a schema in Spark's JSON) and optionally
`recursive`; the answer has `plan` and `output`, or `error` with a line and column of the query.

**Which rules run, and why.** The plan is the analysed one after these of the optimizer's batches, in its own order and
each to its fixed point: those that remove subqueries (decorrelation), expand rewritten functions, push filters and
projections down and fold constants. `LEFT_OUT` names the rules that do not run: those that serve Spark's own execution
(limits in windows, caches, runtime filters, sampling), those that make a plan worse to maintain (a distinct aggregate
as Expand and two aggregates, EXCEPT ALL as a generator, decimals as longs), and those that fold away relations that are
only empty now.
"""

from __future__ import annotations

import contextlib
import difflib
import json
import os
import re
import sys
from typing import Any

from vernier.operators.sql.trees import nodes_in
from vernier.service.sql.completion import complete, each, expressions

LEFT_OUT = frozenset(
    {
        "RewriteDistinctAggregates",
        "EliminateDistinct",
        "RewriteExceptAll",
        "RewriteIntersectAll",
        "ReplaceIntersectWithSemiJoin",
        "ReplaceExceptWithFilter",
        "ReplaceExceptWithAntiJoin",
        "DecimalAggregates",
        "ConvertToLocalRelation",
        "PropagateEmptyRelation",
        "InferFiltersFromConstraints",
        "InferFiltersFromGenerate",
        "InferWindowGroupLimit",
        "LimitPushDown",
        "LimitPushDownThroughWindow",
        "EliminateSorts",
        "EliminateLimits",
        "OptimizeLimitZero",
        "ComputeCurrentTime",
        "CheckCartesianProducts",
        "OptimizeIn",
        "ExtractPythonUDFs",
        "ExtractPythonUDFFromAggregate",
        "ExtractPythonUDFFromJoinCondition",
        "ExtractGroupingPythonUDFFromAggregate",
        "ExtractPythonUDTFs",
        "InjectRuntimeFilter",
        "OptimizeCsvJsonExprs",
        "OptimizeOneRowPlan",
        "OptimizeOneRowRelationSubquery",
        "NormalizeFloatingNumbers",
        "RewriteAsOfJoin",
        "ReplaceCTERefWithRepartition",
        "CombineTypedFilters",
        "TransposeWindow",
        "CollapseWindow",
        "V2ScanPartitioningAndOrdering",
        "UpdateCTERelationStats",
        "MergeScalarSubqueries",
        "MergeSubplans",
    }
)
"""Names of rules without their packages. The meaning of a plan does not depend on them."""
_SETTINGS = {
    "spark.sql.ansi.enabled": "true",
    "spark.sql.session.timeZone": "UTC",
    "spark.sql.caseSensitive": "false",
    "spark.sql.autoBroadcastJoinThreshold": "-1",
    "spark.sql.optimizer.excludedRules": "org.apache.spark.sql.catalyst.optimizer.DecimalAggregates",
    "spark.sql.crossJoin.enabled": "true",
    "spark.sql.legacy.timeParserPolicy": "CORRECTED",
    "spark.sql.cteRecursionLevelLimit": "-1",
    "spark.sql.cteRecursionRowLimit": "-1",
}
_MOST_PASSES = 100


_WINDOWS = {
    "tumble": "write window(ts, '1 hour')",
    "hop": "write window(ts, '1 hour', '10 minutes')",
    "session": "write session_window(ts, '10 minutes')",
}
"""What Spark's SQL has in place of functions of other systems."""


class Catalyst:
    """A Spark session that plans and never runs a job."""

    def __init__(self, session: Any | None = None) -> None:
        from pyspark.sql import SparkSession

        if session is None:
            builder = SparkSession.builder.master("local[1]").appName("vernier plans")
            for name, value in {
                "spark.ui.enabled": "false",
                "spark.driver.memory": "512m",
                "spark.driver.host": "127.0.0.1",
                "spark.driver.bindAddress": "127.0.0.1",
                "spark.driver.extraJavaOptions": "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC -Xshare:auto",
                "spark.log.level": "ERROR",
            }.items():
                builder = builder.config(name, value)
            session = builder.getOrCreate()
        self.spark = session.newSession()
        for name, value in _SETTINGS.items():
            self.spark.conf.set(name, value)
        self.spark.udf.register("data_time", lambda: None, "timestamp")
        self._jvm: Any = self.spark._jvm
        self._empty = self.spark.sparkContext.emptyRDD()

    def plan(self, query: str, leaves: dict[str, Any]) -> dict[str, Any]:
        """The plan of a query over leaves of these schemas, as plain data."""
        from pyspark.errors import PySparkException
        from pyspark.sql.types import StructType

        try:
            for name, schema in leaves.items():
                # The optimizer drops views' names, so a leaf is found again by its columns' names.
                names = [one["name"] for one in schema["fields"]]
                marked = [{**one, "name": f"{name}.{one['name']}"} for one in schema["fields"]]
                frame = self.spark.createDataFrame(self._empty, StructType.fromJson({**schema, "fields": marked}))
                frame.toDF(*names).createOrReplaceTempView(f"`{name}`")
            execution = self.spark.sql(query)._jdf.queryExecution()
            analysed = execution.analyzed()
            output = json.loads(analysed.schema().json())["fields"]
            steady = json.loads(analysed.toJSON())
            optimised = self._optimised(analysed)
            plan = json.loads(optimised.toJSON())
            complete(optimised, plan, self.spark)
            names = [{"name": one["name"], "type": one["type"], "nullable": one["nullable"]} for one in output]
            tries = set[str]()
            if "try_" in query.lower():  # a walk asks the JVM about each expression
                tries = {tried for one in expressions(optimised) if (tried := _tries(one)) is not None}
            return {"plan": plan, "output": names, "analysed": sorted(_classes(steady)), "tries": sorted(tries)}
        except PySparkException as error:
            found = _failure(error)
            if found["condition"].startswith("UNRESOLVED_ROUTINE"):
                found["error"] = self._unknown_function(found["error"])
            return found
        finally:
            for name in leaves:
                with contextlib.suppress(Exception):
                    self.spark.catalog.dropTempView(name)

    def _unknown_function(self, said: str) -> str:
        """What to say of a function that Spark does not have."""
        name = next(iter(re.findall(r"`([^`]+)`", said)), "").lower()
        if name in _WINDOWS:
            return f"there is no function {name}(); {_WINDOWS[name]}"
        known = [
            str(one.funcName())
            for one in each(self.spark._jsparkSession.sessionState().functionRegistry().listFunction())
        ]
        near = difflib.get_close_matches(name, known, 1)
        hint = f"; did you mean {near[0]}()?" if near else ", neither in Spark's SQL nor here"
        return f"there is no function {name}(){hint}"

    def _optimised(self, plan: Any) -> Any:
        """The plan after the chosen rules, batch by batch."""
        optimizer = self.spark._jsparkSession.sessionState().optimizer()
        session = getattr(self._jvm.org.apache.spark.sql.classic, "SparkSession$").__getattr__("MODULE$")
        session.setActiveSession(self.spark._jsparkSession)
        for batch in each(optimizer.batches()):
            rules = [rule for rule in each(batch.rules()) if rule.ruleName().split(".")[-1] not in LEFT_OUT]
            passes = min(int(batch.strategy().maxIterations()), _MOST_PASSES)
            for _ in range(passes):
                before = plan
                for rule in rules:
                    plan = rule.apply(plan)
                if plan.fastEquals(before):
                    break
        return plan


def _tries(expression: Any) -> str | None:
    """The name of a function whose result is null where it does not fit, in place of an error. Spark's JSON lacks
    it."""
    kind = str(expression.getClass().getSimpleName())
    if kind in _TRIES and str(expression.evalMode().toString()) == "TRY":
        return _TRIES[kind]
    if kind == "Sum" and str(expression.evalContext().evalMode().toString()) == "TRY":
        return "try_sum"
    if kind == "Cast" and str(expression.evalMode().toString()) == "TRY":
        read, made = (str(one.typeName()) for one in (expression.child().dataType(), expression.dataType()))
        numbers = ("double", "decimal")
        if read.startswith(numbers) and made.startswith(("tinyint", "smallint", "int", "bigint", "decimal")):
            return "try_cast"
    return None


_TRIES = {"Add": "try_add", "Subtract": "try_subtract", "Multiply": "try_multiply"}


def _classes(tree: Any) -> set[str]:
    """The classes of all nodes and expressions of a plan."""
    return {node["class"].rsplit(".", 1)[-1] for node in nodes_in(tree)}


def _failure(error: Any) -> dict[str, Any]:
    """What Spark found wrong, with a line and a column of the query (from 1) where it knows them."""
    message = str(error.getMessage() if hasattr(error, "getMessage") else error) or str(error)
    found = re.search(r"\bline (\d+),? pos (\d+)", message) or re.search(r"\bline (\d+),? pos (\d+)", str(error))
    first = message.split("\n\n")[0].split("\n== SQL")[0]
    first = re.sub(r"^\[[A-Z_.0-9]+\]\s*", "", first)
    first = re.sub(r"\s*SQLSTATE: \w+", "", first)
    first = re.sub(r";?\s*\(?line \d+,? pos \d+\)?", "", first)
    first = re.split(r";\s*\n|\n'?[A-Z][A-Za-z]+ ", first)[0].strip().rstrip(";.")
    condition = error.getCondition() if hasattr(error, "getCondition") else None
    line, column = (int(found[1]), int(found[2]) + 1) if found else (1, 1)
    return {"error": first, "condition": condition or "", "line": line, "column": column}


def main() -> None:
    """Answer requests until stdin ends."""
    out = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)  # what Java prints must not get between the answers
    catalyst = Catalyst()
    for line in sys.stdin:
        request = json.loads(line)
        try:
            answer = catalyst.plan(request["query"], request["leaves"])
        except Exception as error:  # the caller reports it; the process stays for the next query
            answer = {"failed": f"{type(error).__name__}: {error}"}
        out.write(json.dumps(answer) + "\n")
        out.flush()


if __name__ == "__main__":
    main()
