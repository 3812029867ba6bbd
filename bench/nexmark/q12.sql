-- Query 12, windows: how many bids each bidder makes in ten seconds. Of event time: with processing time, which the
-- original has, the same rows would have another answer in every run.
SELECT bidder, count(*) AS bids, window.start AS begins, window.end AS ends
FROM bid GROUP BY bidder, window(date_time, '10 seconds')
