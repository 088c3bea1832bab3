/** Tables with rows that no driver would write: so an inspector that reads them is seen to fail. */

/** What `write` makes of the name of a table. `key`: the column's name; `bytes`: the type of keys and ids. */
export function wrongTables(
  write: (table: string) => string,
  key: string,
  bytes: string,
  highestToken = "last_token",
  counts = "",
): string[] {
  const [claims, buckets, tombstones] = ["claims", "buckets", "tombstones"].map((word) => write(`holdfast_1_${word}`));
  const integers = "bucket permits permit_limit ttl expires token token_count arrival".split(" ");
  const columns = integers.map((name) => `${name} bigint`).join(", ");
  const exactBeyondDouble = "9007199254740993";
  return [
    `create table ${claims} (id ${bytes}, ${key} ${bytes}, state char(1), ${columns})`,
    `create table ${buckets} (bucket int, ${highestToken} bigint${counts})`,
    `create table ${tombstones} (id ${bytes}, expires bigint)`,
    // it has ended long ago, and its token is above the last one by 1
    `insert into ${claims} (id, ${key}, state, ${integers.join(", ")})
       values ('a', 'é', 'o', 0, 1, 1, 1000, 1, ${exactBeyondDouble}, 1, 1)`,
    `insert into ${claims} (id, ${key}, state, ${integers.join(", ")})
       values ('b', 'é', 'o', 0, 1, 1, 1000, 9000000000000000, 1, 1, 2)`,
    `insert into ${buckets} values (0, 9007199254740992)`,
    `insert into ${tombstones} values ('b', 9000000000000000)`,
  ];
}

/** What an inspector says of them. */
export const EXPECTED_VIOLATIONS: readonly string[] = [
  'a of "é" is in bucket 0',
  'a of "é" has token 9007199254740993, but the last of its bucket is 9007199254740992',
  'b of "é" is in bucket 0',
  'b of "é" expires later than its ttl',
  'b of "é" has a tombstone',
  "there are 1 buckets",
  'b of "é" has token 1, but 9007199254740993 was granted before it',
];
