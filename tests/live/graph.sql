-- The demonstration's views (configs/demo.py) as a program in SQL.
SET name = 'demo';

CREATE TABLE edges (src BIGINT NOT NULL, dst BIGINT NOT NULL);
CREATE TABLE roots (node BIGINT NOT NULL);

CREATE MATERIALIZED VIEW reach WITH (key = 'node', retain = '10 minutes') AS
  WITH MUTUALLY RECURSIVE (ERROR AT RECURSION LIMIT 10000)
    r (node BIGINT) AS (SELECT node FROM roots UNION SELECT e.dst FROM r JOIN edges e ON r.node = e.src)
  SELECT * FROM r;

CREATE MATERIALIZED VIEW distances WITH (key = 'node') AS
  WITH MUTUALLY RECURSIVE (ERROR AT RECURSION LIMIT 10000)
    d (node BIGINT, distance BIGINT) AS (
      SELECT node, min(distance) AS distance
      FROM (SELECT node, 0 AS distance FROM roots
            UNION ALL SELECT e.dst, d.distance + 1 FROM d JOIN edges e ON d.node = e.src)
      GROUP BY node)
  SELECT * FROM d;

CREATE MATERIALIZED VIEW histogram WITH (key = 'distance') AS
  SELECT distance, count(*) AS nodes FROM distances GROUP BY distance;
