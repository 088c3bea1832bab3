/**
 * Bad inputs as they come over the wire (keys and leases over HTTP, too), each with its expected outcome. The numbers count
 * the kinds of bad input that every part of Holdfast is tested with; the last table names the tests of the others.
 */

const ID = "a".repeat(26);

/**
 *   held        a claim like any other
 *   apart       two keys that look alike are two locks: both are held
 *   CODE        the call fails with it, the connection stays
 *   closed      the connection ends, with code PROTOCOL
 */
type ExpectedOutcome = "held" | "apart" | "closed" | "FLOOR" | "LIMIT";

interface MalformedInput {
  readonly row: number;
  readonly what: string;
  readonly outcome: ExpectedOutcome;
}

/** A key in a claim; two keys for "apart". */
export interface MalformedKey extends MalformedInput {
  readonly keys: readonly unknown[];
}

const keyCase = (row: number, what: string, outcome: ExpectedOutcome, ...keys: readonly unknown[]): MalformedKey => ({
  row,
  what,
  outcome,
  keys,
});

export const MALFORMED_KEYS: readonly MalformedKey[] = [
  keyCase(1, "empty", "closed", ""),
  keyCase(2, "one space", "held", " "),
  keyCase(3, "512 bytes", "held", "k".repeat(512)),
  keyCase(4, "513 bytes", "closed", "k".repeat(513)),
  keyCase(5, "1 MiB", "closed", "k".repeat(1_048_576)),
  keyCase(6, "NUL inside", "closed", "a\0b"),
  keyCase(7, "CR LF inside", "closed", "a\r\nb"),
  keyCase(8, "a terminal escape", "closed", "\u001b[2J"),
  keyCase(9, "a lone surrogate", "closed", "\ud800"),
  keyCase(10, "é composed and decomposed", "apart", "\u00e9", "e\u0301"),
  keyCase(11, "A and a", "apart", "A", "a"),
  keyCase(12, "a trailing space", "apart", "k", "k "),
  keyCase(13, "one dot", "apart", ".", "k"),
  keyCase(14, "two dots", "apart", "..", "."),
  keyCase(15, "a way up", "apart", "../../other", "other"),
  keyCase(16, "a slash", "apart", "a/b", "a"),
  keyCase(17, "two slashes", "apart", "a//b", "a/b"),
  keyCase(18, "slashes at the ends", "apart", "/a/", "a"),
  keyCase(19, "zookeeper", "held", "zookeeper"),
  keyCase(20, "escapes of a url", "apart", "%2e%2e%2f", "../"),
  keyCase(21, "hash tags", "apart", "{a}{b}", "{a"),
  keyCase(22, "patterns", "apart", "*", "[a-z]?"),
  keyCase(23, "__proto__", "apart", "__proto__", "prototype"),
  keyCase(24, "constructor", "held", "constructor"),
  keyCase(25, "toString", "held", "toString"),
  keyCase(26, "SQL", "held", "'; DROP TABLE locks;--"),
  keyCase(29, "Lua", "held", "redis.call('flushall')"),
  keyCase(30, "HTML", "held", "<img src=x onerror=alert(1)>"),
  keyCase(31, "right-to-left override", "held", "\u202eabc"),
  keyCase(32, "200 emoji: 800 bytes", "closed", "😀".repeat(200)),
  keyCase(32, "128 emoji: 512 bytes", "held", "😀".repeat(128)),
  ...[7, {}, [], null, true].map((value) => keyCase(33, `${JSON.stringify(value)} as a key`, "closed", value)),
  keyCase(35, "team-ab beside team-a", "apart", "team-a", "team-ab"),
];

/** The rest of a claim's frame behind its holds, as text: much of this no JSON writer would write. */
export interface MalformedTerms extends MalformedInput {
  readonly hold: string;
  readonly rest: string;
}

const termsCase = (
  row: number,
  what: string,
  outcome: ExpectedOutcome,
  rest: string,
  hold = '"k"',
): MalformedTerms => ({
  row,
  what,
  outcome,
  hold,
  rest,
});

export const MALFORMED_TERMS: readonly MalformedTerms[] = [
  termsCase(36, "ttl 0", "closed", "0"),
  termsCase(37, "ttl -1", "closed", "-1"),
  termsCase(38, "ttl 0.5", "closed", "0.5"),
  termsCase(39, "ttl NaN", "closed", "NaN"),
  termsCase(40, "ttl Infinity", "closed", "Infinity"),
  termsCase(41, "ttl 2^31-1", "held", "2147483647"),
  termsCase(42, "ttl 2^31, no timer of 1 ms", "held", "2147483648"),
  termsCase(43, "ttl 2^53", "closed", "9007199254740992"),
  termsCase(43, "ttl of 50 years", "LIMIT", "1576800000000"),
  termsCase(44, 'ttl "1000"', "closed", '"1000"'),
  termsCase(45, "ttl 1e400", "closed", "1e400"),
  termsCase(46, "ttl 100n", "closed", "100n"),
  termsCase(47, "permits 0", "closed", "1000", '["k",0,1]'),
  termsCase(47, "permits -1", "closed", "1000", '["k",-1,1]'),
  termsCase(47, "permits 2^31", "closed", "1000", '["k",2147483648,2147483648]'),
  termsCase(47, "more permits than the limit", "closed", "1000", '["k",2,1]'),
  termsCase(48, "a floor of 2^53-1", "FLOOR", '1000,{"floor":"9007199254740991"}'),
  termsCase(48, "a floor beyond 64 bits", "closed", `1000,{"floor":"${"9".repeat(40)}"}`),
  termsCase(
    59,
    "duplicate and unknown fields: the last and none",
    "held",
    '1000,{"wait":true,"wait":false,"new":[1],"label":"x"}',
  ),
  termsCase(59, "a prototype among the options", "held", '1000,{"__proto__":{"tokens":-5,"wait":"no"}}'),
];

/** Bytes after a good hello (`{START}` stands for the start id), or instead of it. */
export interface MalformedBytes extends MalformedInput {
  readonly afterHello: boolean;
  readonly bytes: Buffer;
}

const bytesCase = (row: number, what: string, text: string | Buffer, afterHello = true): MalformedBytes => ({
  row,
  what,
  outcome: "closed",
  afterHello,
  bytes: typeof text === "string" ? Buffer.from(text) : text,
});

export const MALFORMED_BYTES: readonly MalformedBytes[] = [
  bytesCase(52, "a line that never ends", "x".repeat(300_000)),
  bytesCase(52, "a first line that never ends", "x".repeat(5_000), false),
  bytesCase(53, "an empty line", "\n"),
  bytesCase(53, "an empty first line", "\n", false),
  bytesCase(54, "bytes of some other protocol", Buffer.from([0xff, 0xff, 0xff, 0xff, 0x80, 0x80, 0x01, 0x0a])),
  bytesCase(57, "garbage behind a good hello", "\u0001\u0002 not json\n"),
  bytesCase(57, "garbage behind a good start id", '["{START}",???]\n'),
  bytesCase(58, "JSON nested 100,000 deep", `["{START}",${"[".repeat(100_000)}${"]".repeat(100_000)}]\n`),
  bytesCase(58, "a first line nested 2,000 deep", `{"hello":${"[".repeat(2_000)}${"]".repeat(2_000)}}\n`, false),
  bytesCase(
    58,
    "a frame with holds nested 50,000 deep",
    `["{START}",["claim",1,"${ID}",${"[".repeat(50_000)}${"]".repeat(50_000)},1000]]\n`,
  ),
  bytesCase(
    60,
    "invalid UTF-8",
    Buffer.concat([Buffer.from('["'), Buffer.from([0xc3, 0x28, 0xff]), Buffer.from('"]\n')]),
  ),
  bytesCase(68, "a TLS ClientHello", Buffer.from("16030100f8010000f40303".padEnd(500, "0"), "hex"), false),
];

/** Where the rows are proven that are not in these tables. */
export const COVERED_ELSEWHERE: Readonly<Record<number, string>> = {
  27: "names of tables: no such thing on this wire",
  28: "names of tables: no such thing on this wire",
  34: "objects with hostile methods: test/unit/client/malformed-input.test.ts; JSON carries none",
  49: "a counter of Redis: not this store",
  50: "a counter of Redis: not this store",
  51: "a sequence of ZooKeeper: not this store",
  55: "test/integration/server/denial-of-service.test.ts",
  56: "test/integration/server/malformed-input.test.ts",
  61: "test/integration/server/malformed-input.test.ts",
  62: "test/integration/server/malformed-input.test.ts",
  63: "test/integration/server/malformed-input.test.ts",
  64: "test/integration/server/denial-of-service.test.ts",
  65: "test/integration/server/denial-of-service.test.ts",
  66: "test/integration/server/denial-of-service.test.ts",
  67: "test/integration/server/denial-of-service.test.ts",
  69: "test/integration/server/malformed-input.test.ts",
  70: "test/http",
  71: "test/http",
  72: "test/http",
};
