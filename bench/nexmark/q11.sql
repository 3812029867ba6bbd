-- Query 11, user sessions: how many bids each bidder makes in a session, which ends after ten seconds without any.
SELECT bidder, count(*) AS bids, session_window.start AS begins, session_window.end AS ends
FROM bid GROUP BY session_window(date_time, '10 seconds'), bidder
