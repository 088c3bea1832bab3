/** The shares of a lease by which claims are believed, renewed and called for (decision 0003). */

/** Clock rates may differ by 1 %; the other 9 % of a lease is time for the holder to stop. */
export const BELIEVED_SHARE = 0.9;
/**
 * With less than this share of its lease left a claim is renewed as soon as it is granted, and given to no other
 * request.
 */
export const SHORT_LEASE_SHARE = 0.45;
/** A claim is renewed after each third of its lease. */
export const RENEWALS_PER_LEASE = 3;
/**
 * A call may take a sixth of a lease, as may the pause before the next one: four attempts fit between a renewal and the
 * end of the lease.
 */
export const ATTEMPTS_PER_LEASE = 6;
