/** The time source of the dialect: the server's clock, in microseconds since 1970, as expressions of SQL. */

/**
 * NOW and UTC_TIMESTAMP stand still in a session in which another user of the pool has set `timestamp`; SYSDATE goes on, but knows
 * local time only. In one expression both have the same offset from UTC, unless it has changed between them (daylight saving).
 */
export const NOW =
  "(TIMESTAMPDIFF(MICROSECOND, '1970-01-01', UTC_TIMESTAMP(6)) + TIMESTAMPDIFF(MICROSECOND, NOW(6), SYSDATE(6)))";

/**
 * The time for what writes a lease or decides whether one has ended. NULL in a session that must not do that (refuse_session.sql): its
 * clock was set by more than a minute, which cannot be told from a change of its offset from UTC, or replicas would lack what it writes.
 */
export const LEASE_NOW = `IF(ABS(TIMESTAMPDIFF(SECOND, NOW(), SYSDATE())) > 60 OR (NOT @@session.sql_log_bin AND @@global.log_bin), NULL, ${NOW})`;
