// The raw state of a database that the SQL driver uses: its tables as they are, read by one statement, so at one moment, and
// judged by rules that are written down here once more (docs/design/sql.md), since the driver's own may be what is wrong.

const BUCKET_COUNT = 1_024;
const MYSQL_LAYOUT = 4;
const MICROS_PER_MS = 1_000n;
/** By so much a lease may end later than its ttl from now: the clock of the statement is older than what it reads. */
const CLOCK_TOLERANCE_MICROS = 1_000_000n;

/** Runs a statement over any connection to the database. */
type Query = (text: string) => Promise<readonly Readonly<Record<string, unknown>>[]>;

interface SqlTables {
  /** PostgreSQL: the schema. MariaDB: the database. Default: "holdfast" on PostgreSQL, else where the connection is. */
  readonly schema?: string;
  /** Default: "holdfast". */
  readonly prefix?: string;
}

interface Expectations {
  /** No claim is left, not even one that has expired. */
  readonly expectEmpty?: boolean;
  /** The database's clock was moved: leases may end later than they could. */
  readonly isClockStepped?: boolean;
  /** A grace period of guardDataLoss is running: claims wait that fit. */
  readonly isPaused?: boolean;
}

type Options = SqlTables & Expectations;

/** Everything that is wrong with the tables, in words; empty if nothing is. */
export async function findPostgresViolations(query: Query, options: Options = {}): Promise<string[]> {
  const dialect: InspectedDialect = {
    toText: (expression) => `cast(${expression} as text)`,
    bytesToText: (column) => column,
    name: (table) => `"${options.schema ?? "holdfast"}"."${table}"`,
    key: "key",
    layout: 1,
    highestToken: "highest_token",
    counts: {
      isKnown: "key is not null",
      key: "key",
      first: "first_arrival",
      waitsFrom: "waits_from",
      used: "used",
      nextExpiry: "next_expiry",
      counted: "counted",
    },
    claims: (table) => table("claims"),
    now: "cast(extract(epoch from clock_timestamp()) * 1000000 as bigint)",
  };
  return inspect(query, dialect, options);
}

/** The same on MariaDB and MySQL. */
export async function findMySqlViolations(query: Query, options: Options = {}): Promise<string[]> {
  const dialect: InspectedDialect = {
    toText: (expression) => `cast(${expression} as char)`,
    bytesToText: (column) => `convert(${column} using utf8mb4)`,
    name: (table) =>
      [...(options.schema === undefined ? [] : [options.schema]), table].map((name) => `\`${name}\``).join("."),
    key: "`key`",
    layout: MYSQL_LAYOUT,
    highestToken: "last_token",
    counts: {
      isKnown: "used is not null",
      ...{ key: "`key`", first: "-9223372036854775808", waitsFrom: "waits_from" },
      ...{ used: "used", nextExpiry: "next_expiry", counted: "counted" },
    },
    claims: (table) => `(${mysqlClaims(table("claims"), table("buckets"))}) as claims`,
    now: "timestampdiff(microsecond, '1970-01-01', utc_timestamp(6))",
  };
  const violations = await inspect(query, dialect, options);
  const [claims, buckets] = ["claims", "buckets"].map((word) =>
    dialect.name(`${options.prefix ?? "holdfast"}_${MYSQL_LAYOUT}_${word}`),
  );
  const others = await query(
    `select convert(claim.id using utf8mb4) as id from ${claims} claim join ${buckets} bucket on bucket.bucket = claim.bucket
      where bucket.form = 'queue' and bucket.\`key\` <> claim.\`key\``,
  );
  return [...violations, ...others.map(({ id }) => `${id} has not the one key of its bucket`)];
}

/** The rows of the table of claims, and the claims that are in the rows of their buckets. */
function mysqlClaims(claims: string, buckets: string): string {
  const columns = "id, `key`, bucket, permits, permit_limit, ttl, expires, token_count";
  return `select ${columns}, state, token, arrival from ${claims}
    union all select ${columns}, 'o', last_token - token_count + 1, created from ${buckets} where form = 'lone'`;
}

/** The same on SQLite. */
export async function findSqliteViolations(query: Query, options: Options = {}): Promise<string[]> {
  const dialect: InspectedDialect = {
    toText: (expression) => `cast(${expression} as text)`,
    bytesToText: (column) => `cast(${column} as text)`,
    name: (table) => `"${table}"`,
    key: '"key"',
    layout: 2,
    highestToken: "last_token",
    claims: (table) => table("claims"),
    now: "cast(round(unixepoch('subsec') * 1000) as integer) * 1000",
  };
  const violations = await inspect(query, dialect, options);
  const [totals, claims] = ["totals", "claims"].map((word) => `"${options.prefix ?? "holdfast"}_2_${word}"`);
  const wrongTotals = await query(sqliteWrongTotals(totals as string, claims as string));
  return [
    ...violations,
    ...wrongTotals.map((row) => `the totals of a key are not those of its holders: ${JSON.stringify(row)}`),
  ];
}

/** Where what is noted as in use is not what the holders have. */
function sqliteWrongTotals(totals: string, claims: string): string {
  return `select noted.key as key, noted.used as used, total(claims.permits) as counted,
      noted.first_expires as first_expires, min(claims.expires) as expires
    from ${totals} noted left join ${claims} claims on claims.key = noted.key and claims.token > 0
    group by noted.key having used <> counted or first_expires > min(claims.expires)`;
}

interface InspectedDialect {
  readonly now: string;
  /** The name of the column, which is a word of the language on some. */
  readonly key: string;
  readonly layout: number;
  /** Of a bucket. */
  readonly highestToken: string;
  /** The columns of a bucket's row that have the numbers of one key; undefined: there are none. */
  readonly counts?: Readonly<
    Record<"isKnown" | "key" | "first" | "waitsFrom" | "used" | "nextExpiry" | "counted", string>
  >;
  /** What to select claims from. */
  claims(table: (word: string) => string): string;
  /** No library rounds a text. */
  toText(expression: string): string;
  bytesToText(column: string): string;
  name(table: string): string;
}

export interface ClaimState {
  readonly id: string;
  readonly key: string;
  readonly arrival: bigint;
  readonly bucket: number;
  readonly permits: number;
  readonly limit: number;
  /** o: owned, d: detached, r: revoked. */
  readonly state: string;
  readonly ttlMs: number;
  /** Microseconds since 1970. */
  readonly expires: bigint;
  /** 0: it waits. */
  readonly token: bigint;
  readonly tokenCount: number;
}

/** What the row of a bucket says of one of its keys. */
interface KeyCount {
  readonly key: string;
  readonly bucket: number;
  /** No claim arrived before. */
  readonly first: bigint;
  /** Null: not known, and neither are the others. */
  readonly used: number | null;
  /** Held claims arrived before it, and the others did not. */
  readonly waitsFrom: bigint;
  /** The numbers count from `counted` until then. */
  readonly nextExpiry: bigint;
  readonly counted: bigint;
}

export interface SqlState {
  /** Microseconds since 1970 by the database's clock. */
  readonly now: bigint;
  readonly claims: readonly ClaimState[];
  readonly bucketCount: number;
  /** Of buckets with a grant. */
  readonly lastTokens: ReadonlyMap<number, bigint>;
  readonly counts?: readonly KeyCount[];
  /** When each tombstone ends. */
  readonly tombstones: ReadonlyMap<string, bigint>;
}

async function inspect(query: Query, dialect: InspectedDialect, options: Options): Promise<string[]> {
  return findSqlViolations(toState(await query(snapshotStatement(dialect, options.prefix ?? "holdfast"))), options);
}

/** One statement, since two would see two states. */
function snapshotStatement(
  { toText, bytesToText, name, key, now, layout, highestToken, counts, claims }: InspectedDialect,
  prefix: string,
): string {
  const table = (word: string): string => name(`${prefix}_${layout}_${word}`);
  const numbers = "arrival bucket permits permit_limit ttl expires token token_count".split(" ");
  const select = (kind: string, values: Readonly<Record<string, string>>, from: string): string => {
    const texts = [
      `'${kind}' as kind`,
      ...["id", "name", "state"].map((column) => `${values[column] ?? "''"} as ${column}`),
    ];
    const others = numbers.map((column) => `${toText(values[column] ?? "0")} as ${column}`);
    return `select ${[...texts, ...others].join(", ")}${from}`;
  };
  const claim = Object.fromEntries(numbers.map((column) => [column, column]));
  const text = { id: bytesToText("id"), name: bytesToText(key), state: toText("state") };
  return [
    select("clock", { expires: now, bucket: `(select count(*) from ${table("buckets")})` }, ""),
    select("claim", { ...claim, ...text }, ` from ${claims(table)}`),
    select("bucket", { bucket: "bucket", token: highestToken }, ` from ${table("buckets")} where ${highestToken} <> 0`),
    ...(counts === undefined ? [] : [selectCounts(select, counts, bytesToText(counts.key), table("buckets"))]),
    select("tombstone", { id: text.id, expires: "expires" }, ` from ${table("tombstones")}`),
  ].join("\nunion all ");
}

/** Numbers of the key in columns of claims. */
function selectCounts(
  select: (kind: string, values: Readonly<Record<string, string>>, from: string) => string,
  { isKnown, first, waitsFrom, used, nextExpiry, counted }: NonNullable<InspectedDialect["counts"]>,
  name: string,
  buckets: string,
): string {
  const numbers = { arrival: waitsFrom, expires: nextExpiry, ttl: counted };
  const orZero = Object.fromEntries(
    Object.entries(numbers).map(([column, value]) => [column, `coalesce(${value}, 0)`]),
  );
  const values = { bucket: "bucket", name, token: first, permits: `coalesce(${used}, -1)`, ...orZero };
  return select("count", values, ` from ${buckets} where ${isKnown}`);
}

function toState(rows: readonly Readonly<Record<string, unknown>>[]): SqlState {
  const ofKind = (kind: string): Record<string, string>[] =>
    (rows as readonly Record<string, string>[]).filter((row) => row.kind === kind);
  const [clock] = ofKind("clock");
  const number = (text: string | undefined): number => Number(text);
  return {
    now: BigInt(clock?.expires ?? 0),
    bucketCount: number(clock?.bucket),
    lastTokens: new Map(ofKind("bucket").map(({ bucket, token = "" }) => [number(bucket), BigInt(token)])),
    tombstones: new Map(ofKind("tombstone").map(({ id = "", expires = "" }) => [id, BigInt(expires)])),
    counts: ofKind("count").map((row) => ({
      key: row.name ?? "",
      bucket: number(row.bucket),
      first: BigInt(row.token ?? ""),
      used: row.permits === "-1" ? null : number(row.permits),
      waitsFrom: BigInt(row.arrival ?? ""),
      nextExpiry: BigInt(row.expires ?? ""),
      counted: BigInt(row.ttl ?? ""),
    })),
    claims: ofKind("claim").map((row) => ({
      id: row.id ?? "",
      key: row.name ?? "",
      arrival: BigInt(row.arrival ?? ""),
      bucket: number(row.bucket),
      permits: number(row.permits),
      limit: number(row.permit_limit),
      state: row.state ?? "",
      ttlMs: number(row.ttl),
      expires: BigInt(row.expires ?? ""),
      token: BigInt(row.token ?? ""),
      tokenCount: number(row.token_count),
    })),
  };
}

/** What is wrong with the tables' content. */
export function findSqlViolations(state: SqlState, expectations: Expectations = {}): string[] {
  const violations = state.claims.flatMap((claim) => judgeClaim(claim, state, expectations));
  if (state.bucketCount !== BUCKET_COUNT) violations.push(`there are ${state.bucketCount} buckets`);
  if (expectations.expectEmpty === true)
    violations.push(...state.claims.map(({ id, key }) => `${id} of "${key}" is left`));
  for (const count of state.counts ?? []) violations.push(...judgeCount(count, state));
  for (const key of new Set(state.claims.map((claim) => claim.key))) {
    const queue = state.claims.filter((claim) => claim.key === key);
    violations.push(...judgeQueue(key, queue, state.now, expectations));
  }
  return violations;
}

function judgeClaim(claim: ClaimState, state: SqlState, { isClockStepped = false }: Expectations): string[] {
  const { id, key, token } = claim;
  const latest = state.now + BigInt(claim.ttlMs) * MICROS_PER_MS + CLOCK_TOLERANCE_MICROS;
  const end = state.tombstones.get(id);
  const last = state.lastTokens.get(claim.bucket) ?? 0n;
  return [
    [claim.bucket === bucketOf(key), `${id} of "${key}" is in bucket ${claim.bucket}`],
    [isClockStepped || claim.expires <= latest, `${id} of "${key}" expires later than its ttl`],
    [end === undefined || end <= state.now, `${id} of "${key}" has a tombstone`],
    [lastToken(claim) <= last, `${id} of "${key}" has token ${token}, but the last of its bucket is ${last}`],
    [/^[odr]$/.test(claim.state), `${id} of "${key}" has state ${JSON.stringify(claim.state)}`],
    [
      token > 0n || (token === 0n && claim.state === "o"),
      `${id} of "${key}" waits as ${claim.state} with token ${token}`,
    ],
  ].flatMap(([isRight, violation]) => (isRight === true ? [] : [String(violation)]));
}

/** What is known of a key without its claims is what they say. */
function judgeCount(count: KeyCount, { claims, now }: SqlState): string[] {
  const { key, bucket, first, used, waitsFrom, nextExpiry, counted } = count;
  const queue = claims.filter((claim) => claim.key === key);
  const violations = queue
    .filter(({ arrival }) => arrival < first)
    .map(({ id, arrival }) => `${id} of "${key}" arrived at ${arrival}, before the first at ${first}`);
  if (bucket !== bucketOf(key)) violations.push(`"${key}" is counted in bucket ${bucket}`);
  if (used === null || now < counted || now >= nextExpiry) return violations;
  const held = queue.filter(({ token }) => token > 0n);
  const sum = held.reduce((total, { permits }) => total + permits, 0);
  if (used !== sum) violations.push(`"${key}" counts ${used} permits in use, and ${sum} are`);
  for (const { id, arrival, token, expires } of queue) {
    if (token > 0n !== arrival < waitsFrom) violations.push(`${id} of "${key}" is on the wrong side of ${waitsFrom}`);
    if (token > 0n && expires < nextExpiry) violations.push(`${id} of "${key}" ends before ${nextExpiry}`);
  }
  return violations;
}

/** A key's claims in order of arrival. */
function judgeQueue(
  key: string,
  claims: readonly ClaimState[],
  now: bigint,
  { isPaused = false }: Expectations,
): string[] {
  const violations: string[] = [];
  const queue = claims.toSorted((one, other) => (one.arrival < other.arrival ? -1 : 1));
  let used = 0;
  let isOpen = true;
  let hasExpired = false;
  let previous: ClaimState | undefined;
  let lastGranted = 0n;
  for (const claim of queue) {
    const { id, permits, limit } = claim;
    if (claim.arrival === previous?.arrival) violations.push(`${previous.id} and ${id} of "${key}" have one arrival`);
    previous = claim;
    if (claim.token > 0n && claim.token <= lastGranted) {
      violations.push(`${id} of "${key}" has token ${claim.token}, but ${lastGranted} was granted before it`);
    }
    if (claim.token > 0n) lastGranted = lastToken(claim);
    if (claim.expires <= now) {
      hasExpired = true;
      continue;
    }
    const fits = used + permits <= limit;
    if (claim.token > 0n) {
      used += permits;
      if (!fits) violations.push(`"${key}" is held beyond its limit: ${id} (${permits} of ${limit}) makes it ${used}`);
      if (!isOpen) violations.push(`${id} of "${key}" is held before one that arrived earlier`);
    } else {
      // an expired claim ahead is removed by the next call only
      if (isOpen && fits && !hasExpired && !isPaused) violations.push(`${id} of "${key}" waits, but it fits`);
      isOpen = false;
    }
  }
  return violations;
}

/** Of the range that was granted. */
function lastToken({ token, tokenCount }: ClaimState): bigint {
  return token === 0n ? 0n : token + BigInt(tokenCount) - 1n;
}

/** CRC-16/XMODEM of the key's UTF-8, its lowest bits. */
function bucketOf(key: string): number {
  let crc = 0;
  for (const byte of Buffer.from(key)) {
    crc ^= byte << 8;
    for (let bit = 0; bit < 8; bit++) crc = ((crc << 1) ^ (crc & 0x8000 ? 0x1021 : 0)) & 0xffff;
  }
  return crc % BUCKET_COUNT;
}
