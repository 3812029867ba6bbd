-- Query 6, average selling price by seller: of the winning bids of the last ten auctions, and the one before.
WITH winning AS (
  SELECT id, seller, price, date_time
  FROM (
    SELECT a.id, a.seller, b.price, b.date_time,
      row_number() OVER (PARTITION BY a.id ORDER BY b.price DESC, b.date_time) AS place
    FROM auction a JOIN bid b ON a.id = b.auction AND b.date_time BETWEEN a.date_time AND a.expires
  )
  WHERE place <= 1
)
SELECT seller, id,
  avg(price) OVER (PARTITION BY seller ORDER BY date_time ROWS BETWEEN 10 PRECEDING AND CURRENT ROW) AS average
FROM winning
