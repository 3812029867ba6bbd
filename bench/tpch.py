"""TPC-H for the tests and the benchmarks of SQL: its tables as a program declares them, their rows and queries.

Rows and queries come from DuckDB's extension `tpch` (`duckdb-extension-tpch` on PyPI), which makes the same rows for a
scale factor everywhere. One million rows of line items and orders are a scale factor of 0.13.
"""

from __future__ import annotations

from pathlib import Path

import duckdb
import duckdb_extension_tpch

TABLES = """
CREATE TABLE region (r_regionkey INT NOT NULL, r_name STRING NOT NULL, r_comment STRING NOT NULL);
CREATE TABLE nation (n_nationkey INT NOT NULL, n_name STRING NOT NULL, n_regionkey INT NOT NULL,
  n_comment STRING NOT NULL);
CREATE TABLE supplier (s_suppkey BIGINT NOT NULL, s_name STRING NOT NULL, s_address STRING NOT NULL,
  s_nationkey INT NOT NULL, s_phone STRING NOT NULL, s_acctbal DECIMAL(15, 2) NOT NULL, s_comment STRING NOT NULL);
CREATE TABLE customer (c_custkey BIGINT NOT NULL, c_name STRING NOT NULL, c_address STRING NOT NULL,
  c_nationkey INT NOT NULL, c_phone STRING NOT NULL, c_acctbal DECIMAL(15, 2) NOT NULL,
  c_mktsegment STRING NOT NULL, c_comment STRING NOT NULL);
CREATE TABLE part (p_partkey BIGINT NOT NULL, p_name STRING NOT NULL, p_mfgr STRING NOT NULL, p_brand STRING NOT NULL,
  p_type STRING NOT NULL, p_size INT NOT NULL, p_container STRING NOT NULL, p_retailprice DECIMAL(15, 2) NOT NULL,
  p_comment STRING NOT NULL);
CREATE TABLE partsupp (ps_partkey BIGINT NOT NULL, ps_suppkey BIGINT NOT NULL, ps_availqty BIGINT NOT NULL,
  ps_supplycost DECIMAL(15, 2) NOT NULL, ps_comment STRING NOT NULL);
CREATE TABLE orders (o_orderkey BIGINT NOT NULL, o_custkey BIGINT NOT NULL, o_orderstatus STRING NOT NULL,
  o_totalprice DECIMAL(15, 2) NOT NULL, o_orderdate DATE NOT NULL, o_orderpriority STRING NOT NULL,
  o_clerk STRING NOT NULL, o_shippriority INT NOT NULL, o_comment STRING NOT NULL);
CREATE TABLE lineitem (l_orderkey BIGINT NOT NULL, l_partkey BIGINT NOT NULL, l_suppkey BIGINT NOT NULL,
  l_linenumber BIGINT NOT NULL, l_quantity DECIMAL(15, 2) NOT NULL, l_extendedprice DECIMAL(15, 2) NOT NULL,
  l_discount DECIMAL(15, 2) NOT NULL, l_tax DECIMAL(15, 2) NOT NULL, l_returnflag STRING NOT NULL,
  l_linestatus STRING NOT NULL, l_shipdate DATE NOT NULL, l_commitdate DATE NOT NULL, l_receiptdate DATE NOT NULL,
  l_shipinstruct STRING NOT NULL, l_shipmode STRING NOT NULL, l_comment STRING NOT NULL);
"""
NAMES = ("region", "nation", "supplier", "customer", "part", "partsupp", "orders", "lineitem")


def fill(connection: duckdb.DuckDBPyConnection, scale: float) -> dict[int, str]:
    """Fill the eight tables, and return the queries by number. The connection allows unsigned extensions."""
    (extension,) = Path(str(duckdb_extension_tpch.__file__)).parent.rglob("tpch.duckdb_extension")
    connection.execute(f"LOAD '{extension}'")
    connection.execute(f"CALL dbgen(sf = {scale})")
    return dict(connection.execute("SELECT query_nr, query FROM tpch_queries()").fetchall())


def view(connection: duckdb.DuckDBPyConnection, number: int, query: str) -> str:
    """The statement that maintains a query, with names for its columns, some of which have none."""
    names = ", ".join(f"c{i}" for i in range(len(connection.execute(query).description or ())))
    return f"CREATE MATERIALIZED VIEW q{number} ({names}) AS {query.strip().rstrip(';')};\n"
