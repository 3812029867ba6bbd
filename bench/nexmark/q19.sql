-- Query 19, top ten: the ten highest bids of each auction with their places, the earliest of equals first.
SELECT *
FROM (SELECT *, row_number() OVER (PARTITION BY auction ORDER BY price DESC, date_time) AS place FROM bid)
WHERE place <= 10
