-- Query 5, hot items: the auctions with most bids in each window of ten seconds, every two seconds.
WITH counted AS (
  SELECT auction, count(*) AS num, window.start AS begins, window.end AS ends
  FROM bid
  GROUP BY auction, window(date_time, '10 seconds', '2 seconds')
), highest AS (
  SELECT max(num) AS num, begins, ends FROM counted GROUP BY begins, ends
)
SELECT c.auction, c.num, c.begins, c.ends
FROM counted c JOIN highest h ON c.begins = h.begins AND c.ends = h.ends AND c.num >= h.num
