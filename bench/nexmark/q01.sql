-- Query 1, currency conversion: the price of each bid in euros.
SELECT auction, bidder, 0.908 * price AS price, date_time, extra FROM bid
