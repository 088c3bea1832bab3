/**
 * Bad inputs as they come over the wire, each with what must become of it (keys and leases over HTTP, too). The numbers are those of the list of 72 that
 * every part of Holdfast is held to; the last table says where the others are proven.
 */

const ID = "a".repeat(26);

/**
 *   held        a claim like any other
 *   apart       two keys that look alike are two locks: both are held
 *   CODE        the call fails with it, the connection stays
 *   closed      the connection ends, with code PROTOCOL
 */
type Outcome = "held" | "apart" | "closed" | "FLOOR" | "LIMIT";

interface BadInput {
  readonly row: number;
  readonly what: string;
  readonly outcome: Outcome;
}

/** A key in a claim; two keys for "apart". */
export interface BadKey extends BadInput {
  readonly keys: readonly unknown[];
}

const key = (row: number, what: string, outcome: Outcome, ...keys: readonly unknown[]): BadKey => ({
  row,
  what,
  outcome,
  keys,
});

export const BAD_KEYS: readonly BadKey[] = [
  key(1, "empty", "closed", ""),
  key(2, "one space", "held", " "),
  key(3, "512 bytes", "held", "k".repeat(512)),
  key(4, "513 bytes", "closed", "k".repeat(513)),
  key(5, "1 MiB", "closed", "k".repeat(1_048_576)),
  key(6, "NUL inside", "closed", "a\0b"),
  key(7, "CR LF inside", "closed", "a\r\nb"),
  key(8, "a terminal escape", "closed", "\u001b[2J"),
  key(9, "a lone surrogate", "closed", "\ud800"),
  key(10, "é composed and decomposed", "apart", "\u00e9", "e\u0301"),
  key(11, "A and a", "apart", "A", "a"),
  key(12, "a trailing space", "apart", "k", "k "),
  key(13, "one dot", "apart", ".", "k"),
  key(14, "two dots", "apart", "..", "."),
  key(15, "a way up", "apart", "../../other", "other"),
  key(16, "a slash", "apart", "a/b", "a"),
  key(17, "two slashes", "apart", "a//b", "a/b"),
  key(18, "slashes at the ends", "apart", "/a/", "a"),
  key(19, "zookeeper", "held", "zookeeper"),
  key(20, "escapes of a url", "apart", "%2e%2e%2f", "../"),
  key(21, "hash tags", "apart", "{a}{b}", "{a"),
  key(22, "patterns", "apart", "*", "[a-z]?"),
  key(23, "__proto__", "apart", "__proto__", "prototype"),
  key(24, "constructor", "held", "constructor"),
  key(25, "toString", "held", "toString"),
  key(26, "SQL", "held", "'; DROP TABLE locks;--"),
  key(29, "Lua", "held", "redis.call('flushall')"),
  key(30, "HTML", "held", "<img src=x onerror=alert(1)>"),
  key(31, "right-to-left override", "held", "\u202eabc"),
  key(32, "200 emoji: 800 bytes", "closed", "😀".repeat(200)),
  key(32, "128 emoji: 512 bytes", "held", "😀".repeat(128)),
  ...[7, {}, [], null, true].map((value) => key(33, `${JSON.stringify(value)} as a key`, "closed", value)),
  key(35, "team-ab beside team-a", "apart", "team-a", "team-ab"),
];

/** The rest of a claim's frame behind its holds, as text: much of this no JSON writer would write. */
export interface BadTerms extends BadInput {
  readonly hold: string;
  readonly rest: string;
}

const terms = (row: number, what: string, outcome: Outcome, rest: string, hold = '"k"'): BadTerms => ({
  row,
  what,
  outcome,
  hold,
  rest,
});

export const BAD_TERMS: readonly BadTerms[] = [
  terms(36, "ttl 0", "closed", "0"),
  terms(37, "ttl -1", "closed", "-1"),
  terms(38, "ttl 0.5", "closed", "0.5"),
  terms(39, "ttl NaN", "closed", "NaN"),
  terms(40, "ttl Infinity", "closed", "Infinity"),
  terms(41, "ttl 2^31-1", "held", "2147483647"),
  terms(42, "ttl 2^31, no timer of 1 ms", "held", "2147483648"),
  terms(43, "ttl 2^53", "closed", "9007199254740992"),
  terms(43, "ttl of 50 years", "LIMIT", "1576800000000"),
  terms(44, 'ttl "1000"', "closed", '"1000"'),
  terms(45, "ttl 1e400", "closed", "1e400"),
  terms(46, "ttl 100n", "closed", "100n"),
  terms(47, "permits 0", "closed", "1000", '["k",0,1]'),
  terms(47, "permits -1", "closed", "1000", '["k",-1,1]'),
  terms(47, "permits 2^31", "closed", "1000", '["k",2147483648,2147483648]'),
  terms(47, "more permits than the limit", "closed", "1000", '["k",2,1]'),
  terms(48, "a floor of 2^53-1", "FLOOR", '1000,{"floor":"9007199254740991"}'),
  terms(48, "a floor beyond 64 bits", "closed", `1000,{"floor":"${"9".repeat(40)}"}`),
  terms(
    59,
    "duplicate and unknown fields: the last and none",
    "held",
    '1000,{"wait":true,"wait":false,"new":[1],"label":"x"}',
  ),
  terms(59, "a prototype among the options", "held", '1000,{"__proto__":{"tokens":-5,"wait":"no"}}'),
];

/** Bytes after a good hello (`{START}` stands for the start id), or instead of it. */
export interface BadBytes extends BadInput {
  readonly greeted: boolean;
  readonly bytes: Buffer;
}

const bytes = (row: number, what: string, text: string | Buffer, greeted = true): BadBytes => ({
  row,
  what,
  outcome: "closed",
  greeted,
  bytes: typeof text === "string" ? Buffer.from(text) : text,
});

export const BAD_BYTES: readonly BadBytes[] = [
  bytes(52, "a line that never ends", "x".repeat(300_000)),
  bytes(52, "a first line that never ends", "x".repeat(5_000), false),
  bytes(53, "an empty line", "\n"),
  bytes(53, "an empty first line", "\n", false),
  bytes(54, "bytes of some other protocol", Buffer.from([0xff, 0xff, 0xff, 0xff, 0x80, 0x80, 0x01, 0x0a])),
  bytes(57, "garbage behind a good hello", "\u0001\u0002 not json\n"),
  bytes(57, "garbage behind a good start id", '["{START}",???]\n'),
  bytes(58, "JSON nested 100,000 deep", `["{START}",${"[".repeat(100_000)}${"]".repeat(100_000)}]\n`),
  bytes(58, "a first line nested 2,000 deep", `{"hello":${"[".repeat(2_000)}${"]".repeat(2_000)}}\n`, false),
  bytes(
    58,
    "a frame with holds nested 50,000 deep",
    `["{START}",["claim",1,"${ID}",${"[".repeat(50_000)}${"]".repeat(50_000)},1000]]\n`,
  ),
  bytes(60, "invalid UTF-8", Buffer.concat([Buffer.from('["'), Buffer.from([0xc3, 0x28, 0xff]), Buffer.from('"]\n')])),
  bytes(68, "a TLS ClientHello", Buffer.from("16030100f8010000f40303".padEnd(500, "0"), "hex"), false),
];

/** Where the rows are proven that are not in these tables. */
export const ELSEWHERE: Readonly<Record<number, string>> = {
  27: "names of tables: no such thing on this wire",
  28: "names of tables: no such thing on this wire",
  34: "objects with hostile methods: test/client/bad-input.test.ts; JSON carries none",
  49: "a counter of Redis: not this store",
  50: "a counter of Redis: not this store",
  51: "a sequence of ZooKeeper: not this store",
  55: "flood.test.ts",
  56: "bad-input-wire.test.ts, below",
  61: "bad-input-wire.test.ts, below",
  62: "bad-input-wire.test.ts, below",
  63: "bad-input-wire.test.ts, below",
  64: "flood.test.ts",
  65: "flood.test.ts",
  66: "flood.test.ts",
  67: "flood.test.ts",
  69: "bad-input-wire.test.ts, below",
  70: "test/http",
  71: "test/http",
  72: "test/http",
};
