/* purge-all.sql — deletes the expired claims and tombstones of keys that are not used any more; run by open(). Claims that
   wait behind them find out when they recheck.
   Parameters of each: now
   Cost: O(claims); O(expired tombstones). */
delete from {claims} where expires <= ?
--- next
delete from {tombstones} where expires <= ?
