/**
 * Settings of the session for one call, on MariaDB (MySQL reads a comment): whatever another user of the pool has set
 * there, the call does the same. Each setting costs time, so an uncontended claim has only those that its one statement
 * needs.
 */

/**
 * A call ends before its client gives it up, also while a table is locked, and does not fail because another call has
 * the row of its bucket.
 */
const LIMITS = "max_statement_time=?,innodb_lock_wait_timeout=?";

/**
 * For all that reads or inserts several rows: it does not fail by a limit of rows to examine, or by one of the bytes by
 * which rows are sorted; and without the two checks an insert into an empty table locks all of it. The time zone is for
 * what converts a time of the server (check_identity.sql): with daylight saving its local time is ambiguous for an
 * hour. Its name is ASCII whatever the session's character set is. The clock (clock.ts) does without the setting: it
 * compares two local times of one moment, so it is wrong only in that hour, and only in a session whose `timestamp` was
 * set to just an hour before or after.
 */
const OF_ROWS = "sql_big_selects=1,max_sort_length=1024,unique_checks=1,foreign_key_checks=1,time_zone=_ascii'+00:00'";

/** The word {row_settings} of a procedure whose first step needs none of them. */
export const ROW_SETTINGS: string = formatSettings(OF_ROWS);

/** Procedures that set those of rows themselves, if they come to more than one statement ({row_settings}). */
const SET_THEIR_OWN: readonly string[] = ["claim", "release"];

/** Precedes the call of a procedure, with two values: the longest time of the call, and of a wait for a row, in seconds. */
export function formatCallSettings(procedure: string): string {
  return formatSettings(SET_THEIR_OWN.includes(procedure) ? LIMITS : `${LIMITS},${OF_ROWS}`);
}

function formatSettings(settings: string): string {
  return `/*M! set statement ${settings} for */`;
}
