-- Query 7, highest bid: the bids with the highest price of each ten seconds.
SELECT b.auction, b.price, b.bidder, b.date_time, b.extra
FROM bid b JOIN (
  SELECT max(price) AS price, window.end AS ends FROM bid GROUP BY window(date_time, '10 seconds')
) m ON b.price = m.price AND b.date_time BETWEEN m.ends - INTERVAL 10 SECONDS AND m.ends
