/**
 * The time source of the dialect: the clock of this machine, in microseconds since 1970, exact to a millisecond. Each
 * statement reads it again.
 */
export const NOW = "(cast(round(unixepoch('subsec') * 1000) as integer) * 1000)";
