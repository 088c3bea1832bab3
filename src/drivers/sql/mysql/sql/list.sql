/* list.sql — lists live claims in order of key and arrival. Takes no lock.
   in       p_from, p_to: keys from p_from on, and below p_to; p_key and p_arrival: only rows after this one, p_arrival NULL: all;
            p_max: the most rows; p_first_bucket, p_last_bucket: the keys have buckets from this one to that one
   returns  a row for each claim: keys and labels in hexadecimal, numbers as text, since clients round large ones
   cost     O(rows of the page, expired rows between them, and buckets) */
CREATE PROCEDURE {list}(
  IN p_from VARBINARY(512), IN p_to VARBINARY(513), IN p_key VARBINARY(512), IN p_arrival BIGINT, IN p_max INT,
  IN p_first_bucket SMALLINT, IN p_last_bucket SMALLINT
)
SQL SECURITY INVOKER READS SQL DATA COMMENT '{revision}'
BEGIN
  DECLARE v_now BIGINT;
  SET TRANSACTION ISOLATION LEVEL READ COMMITTED;
  START TRANSACTION READ ONLY;
  BEGIN
    DECLARE EXIT HANDLER FOR SQLEXCEPTION BEGIN
      ROLLBACK AND NO CHAIN NO RELEASE;
      RESIGNAL;
    END;
    SET v_now = {now};
    -- one statement: between two a claim could move from its bucket's row into the table of claims
    SELECT CONVERT(id USING ascii) AS id, HEX(`key`) AS key_hex, CAST(arrival AS CHAR) AS arrival, CAST(permits AS CHAR) AS permits,
        CAST(permit_limit AS CHAR) AS permit_limit, CAST(ttl AS CHAR) AS ttl, CAST(token_count AS CHAR) AS token_count,
        CAST(floor AS CHAR) AS floor, CAST(wait AS CHAR) AS wait, HEX(label) AS label_hex, CAST(token AS CHAR) AS token,
        CAST((LEAST(expires, v_now + ttl * 1000) - v_now) DIV 1000 AS CHAR) AS remaining,
        CAST(GREATEST(v_now - created, 0) DIV 1000 AS CHAR) AS age,
        IF(granted IS NULL, '', CAST(GREATEST(v_now - granted, 0) DIV 1000 AS CHAR)) AS held, state
      FROM (
        (SELECT id, `key`, arrival, permits, permit_limit, state, ttl, expires, token, token_count, floor, wait, label, created, granted
          FROM {claims} FORCE INDEX (by_key)
          WHERE `key` >= p_from AND `key` < p_to AND expires > v_now
            AND (p_arrival IS NULL OR `key` > p_key OR (`key` = p_key AND arrival > p_arrival))
          ORDER BY `key`, arrival LIMIT p_max)
        UNION ALL
        (SELECT id, `key`, 1, permits, permit_limit, 'o', ttl, expires, last_token - token_count + 1, token_count, floor, wait, label,
            created, created
          FROM {buckets}
          WHERE bucket BETWEEN p_first_bucket AND p_last_bucket AND form = 'lone' AND `key` >= p_from AND `key` < p_to AND expires > v_now
            AND (p_arrival IS NULL OR `key` > p_key OR (`key` = p_key AND 1 > p_arrival))
          ORDER BY `key` LIMIT p_max)
      ) AS c
      -- without the table's name these would be the columns of the result, which are text
      ORDER BY c.`key`, c.arrival LIMIT p_max;
    COMMIT AND NO CHAIN NO RELEASE;
  END;
END
