/** The time source of the dialect: the server's clock, in microseconds since 1970, as expressions of SQL. */

import { IS_READ_ONLY } from "./read-only.ts";

/**
 * NOW and UTC_TIMESTAMP stand still in a session in which another user of the pool has set `timestamp`; SYSDATE goes
 * on, but knows local time only. In one expression both have the same offset from UTC, unless it has changed between
 * them (daylight saving).
 */
export const NOW =
  "(timestampdiff(microsecond, '1970-01-01', utc_timestamp(6)) + timestampdiff(microsecond, now(6), sysdate(6)))";

/**
 * The time for what writes a lease or decides whether one has ended. NULL in a session that must not do that
 * (refuse_session.sql): its clock was set by more than a minute, which cannot be told from a change of its offset from
 * UTC, or replicas would lack what it writes. NULL, too, if the server has ceased to be the primary.
 */
export const LEASE_NOW: string = `if(abs(timestampdiff(second, now(), sysdate())) > 60 or (not @@session.sql_log_bin and @@global.log_bin) or ${IS_READ_ONLY}, null, ${NOW})`;
