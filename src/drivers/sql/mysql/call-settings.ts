/**
 * Settings of the session for one call, on MariaDB (MySQL reads a comment): whatever another user of the pool has set
 * there, the call does the same. Each setting costs the server about 1 % of an uncontended claim.
 */

/**
 * A call ends before its client gives it up, and does not fail by a time-out. In a time zone with daylight saving the
 * local time of the clock (clock.ts) would be ambiguous for an hour.
 */
const LIMITS = "max_statement_time=?,lock_wait_timeout=?,innodb_lock_wait_timeout=?,time_zone='+00:00'";

/**
 * For all that reads or inserts several rows: it does not fail by a limit of rows to examine, or by one of the bytes by
 * which rows are sorted; and without the two checks an insert into an empty table locks all of it.
 */
const OF_ROWS = "sql_big_selects=1,max_sort_length=1024,unique_checks=1,foreign_key_checks=1";

/** The word {row_settings} of a procedure whose first step needs none of them. */
export const ROW_SETTINGS: string = set(OF_ROWS);

/** Procedures that set those of rows themselves, and only if they need them. */
const SET_THEIR_OWN: readonly string[] = ["claim", "release"];

/** Precedes the call of a procedure, with three values: seconds of the statement, of a table lock, of a row lock. */
export function settingsOfCall(procedure: string): string {
  return set(SET_THEIR_OWN.includes(procedure) ? LIMITS : `${LIMITS},${OF_ROWS}`);
}

function set(settings: string): string {
  return `/*M! set statement ${settings} for */`;
}
