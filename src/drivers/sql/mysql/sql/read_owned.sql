/* read_owned.sql — reads the claims of a process, waiting and held, that are neither detached nor revoked. Takes no lock.
   in       p_inbox: that of the process
   returns  a row for each claim: the key in hexadecimal
   cost     O(all rows): it is called once after a break */
CREATE PROCEDURE {read_owned}(IN p_inbox VARBINARY(64))
SQL SECURITY INVOKER READS SQL DATA COMMENT '{revision}'
BEGIN
  SET TRANSACTION ISOLATION LEVEL READ COMMITTED;
  START TRANSACTION READ ONLY;
  BEGIN
    DECLARE EXIT HANDLER FOR SQLEXCEPTION BEGIN
      ROLLBACK AND NO CHAIN NO RELEASE;
      RESIGNAL;
    END;
    SELECT CONVERT(id USING ascii) AS id, HEX(`key`) AS key_hex, bucket, CAST(ttl AS CHAR) AS ttl
      FROM {claims} WHERE inbox = p_inbox AND state = 'o'
    UNION ALL SELECT CONVERT(id USING ascii), HEX(`key`), bucket, CAST(ttl AS CHAR) FROM {buckets} WHERE form = 'lone' AND inbox = p_inbox;
    COMMIT AND NO CHAIN NO RELEASE;
  END;
END
