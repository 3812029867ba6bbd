-- Query 8, new users: persons who registered and sold within the same ten seconds.
SELECT p.id, p.name, p.begins
FROM (
  SELECT id, name, window.start AS begins, window.end AS ends
  FROM person GROUP BY id, name, window(date_time, '10 seconds')
) p JOIN (
  SELECT seller, window.start AS begins, window.end AS ends
  FROM auction GROUP BY seller, window(date_time, '10 seconds')
) a ON p.id = a.seller AND p.begins = a.begins AND p.ends = a.ends
