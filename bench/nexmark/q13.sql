-- Query 13, bounded side input: bids with the values of a small table, which is a source here.
SELECT b.auction, b.bidder, b.price, b.date_time, s.value
FROM bid b JOIN side_input s ON mod(b.auction, 10000) = s.key
