/**
 * Whether the server only reads, as an expression of SQL. It does not refuse all accounts then (READ ONLY ADMIN; SUPER
 * before MariaDB 10.11 and on MySQL), so calls look themselves: without that a former primary would go on granting to
 * these. A number, from MariaDB 12.0 on a word.
 */
export const IS_READ_ONLY = "concat(@@global.read_only) not in ('0', 'OFF')";
