// A driver of one's own, complete: a record for each key in Redis, changed by compare-and-set, and a channel on which every
// change names the claims that it has granted. docs/write-a-driver.md shows this file as it stands.

import type {
  Answer,
  Claim,
  ClaimView,
  Driver,
  DriverEvents,
  ListOptions,
  LockSpec,
  Page,
  Traits,
} from "holdfast/driver";
import { acceptsFloor, countAdmitted, nextToken, publicTag, StoreRefusedError } from "holdfast/driver";
import { Redis } from "ioredis";

const PREFIX = "lock:";
const CHANNEL = "lock-grants";

/** Pushes may be lost, and none is sent when a lease ends: so waiting claims are rechecked at this interval. */
const RECHECK_MS = 500;

/** A change that takes longer is refused, so that its time is not older than a token that has been forgotten. */
const MAX_CHANGE_MS = 1_000;

const TRAITS: Traits = {
  lease: { claim: true },
  manyKeys: false, // the core then takes several keys one by one, in key order
  permits: "any",
  fencing: true,
  fifo: true,
  durability: "process", // a Redis need not keep anything across a restart
  recall: false,
};

/** What the store keeps of a key. */
interface KeyRecord {
  /** Front first. */
  entries: QueueEntry[];
  lastToken: number;
  /** Ids whose late `claim` calls are to be answered "none", each until a time. */
  tombstones: Record<string, number>;
}

interface QueueEntry extends LockSpec {
  readonly claim: Omit<Claim, "locks" | "floor">;
  readonly floor: string; // JSON has no bigint
  readonly enqueuedAt: number;
  expiresAt: number;
  /** 0 while it waits. */
  token: number;
}

export function pushingDriver(url: string): Driver {
  /** One for calls, and one that listens. Empty: the driver is not open. */
  let connections: readonly Redis[] = [];
  /** The ids of claims that may wait, by tag: an id is a secret, so the channel has tags. */
  const waiting = new Map<string, string>();

  const redis = (): Redis => {
    const [first] = connections;
    if (first === undefined) throw new Error("pushing: the driver is not open");
    return first;
  };

  const note = ({ id }: Claim, answer: Answer): Answer => {
    if (answer.state !== "waiting") waiting.delete(publicTag(id));
    return answer;
  };

  /** Restarts the lease of a claim that is there, and places one that is not, if it may be placed. */
  const renewOrPlace = async (claim: Claim, mayPlace: boolean): Promise<Answer> => {
    const answer = await changeRecord(redis(), claim.locks[0].key, (record, now) => {
      const entry = findEntry(record, claim);
      if (entry !== undefined) entry.expiresAt = now + Number(claim.ttlMs);
      else if (mayPlace && record.tombstones[claim.id] === undefined) place(record, claim, now);
      return () => toAnswer(findEntry(record, claim), now);
    });
    return note(claim, answer);
  };

  return {
    name: "pushing",

    async open(events) {
      connections = await connect(url, events, (tag) => {
        const id = waiting.get(tag);
        if (id !== undefined) events.recheck(id);
      });
      return TRAITS;
    },

    async close() {
      for (const connection of connections) connection.disconnect();
      connections = [];
    },

    async claim(claim) {
      waiting.set(publicTag(claim.id), claim.id); // before the call: the push may be faster than the answer
      return renewOrPlace(claim, true);
    },

    renew: (claims) => Promise.all(claims.map((claim) => renewOrPlace(claim, false))),

    async release(releases) {
      for (const { claim } of releases) waiting.delete(publicTag(claim.id));
      const remove = ({ claim, hasUnansweredClaim }: (typeof releases)[number]): Promise<boolean> =>
        changeRecord(redis(), claim.locks[0].key, (record, now) => {
          if (hasUnansweredClaim) record.tombstones[claim.id] = now + Number(claim.ttlMs);
          const entry = findEntry(record, claim);
          record.entries = record.entries.filter((other) => other !== entry);
          return () => entry !== undefined;
        });
      return Promise.all(releases.map(remove));
    },

    forget: ({ id }) => void waiting.delete(publicTag(id)),

    async list({ prefix, key }, options) {
      const keys = key === undefined ? await listKeys(redis(), prefix) : [key];
      const queues = await Promise.all(keys.map((one) => readRecord(redis(), one)));
      return toPage(
        queues.flatMap(({ record, now }) => record.entries.map((entry) => toView(entry, now))),
        options,
      );
    },
  };
}

/** Opens both connections. After a break ioredis connects them again, and the core has to hear of both. */
async function connect(url: string, events: DriverEvents, onGrant: (tag: string) => void): Promise<readonly Redis[]> {
  const redis = new Redis(url, { lazyConnect: true, maxRetriesPerRequest: 1 });
  const listener = redis.duplicate({ autoResubscribe: false });
  const both = [redis, listener];
  for (const connection of both) connection.on("error", () => undefined); // "close" follows
  try {
    await Promise.all(both.map((connection) => connection.connect()));
    await listener.subscribe(CHANNEL);
  } catch (error) {
    for (const connection of both) connection.disconnect(); // open() may be called again
    throw error;
  }
  for (const connection of both) connection.on("close", () => events.disconnected());
  redis.on("ready", () => events.reconnected());
  listener.on("ready", () => {
    // not before it listens again: what is published until then is missed
    listener.subscribe(CHANNEL).then(
      () => events.reconnected(),
      () => undefined, // it broke again
    );
  });
  listener.on("message", (_channel, tag) => onGrant(tag));
  return both;
}

/** The record without what has run out, as text as it was read, and the store's time. */
async function readRecord(redis: Redis, key: string): Promise<{ text: string; record: KeyRecord; now: number }> {
  const [text, [seconds, micros]] = await Promise.all([redis.get(PREFIX + key), redis.time()]);
  const now = Math.floor(Number(seconds) * 1_000 + Number(micros) / 1_000);
  const record: KeyRecord = JSON.parse(text ?? '{"entries":[],"lastToken":0,"tombstones":{}}');
  record.entries = record.entries.filter(({ expiresAt }) => expiresAt > now);
  record.tombstones = Object.fromEntries(Object.entries(record.tombstones).filter(([, until]) => until > now));
  return { text: text ?? "", record, now };
}

/** ARGV: the record as it was read, and when; what replaces it, and for how long; the tags of the claims that are granted. */
const COMPARE_AND_SET = `
local time = redis.call("TIME")
if time[1] * 1000 + time[2] / 1000 - ARGV[2] > ${MAX_CHANGE_MS} then return redis.error_reply("ERR the change is too late") end
if (redis.call("GET", KEYS[1]) or "") ~= ARGV[1] then return 0 end
redis.call("SET", KEYS[1], ARGV[3], "PX", ARGV[4])
for i = 5, #ARGV do redis.call("PUBLISH", "${CHANNEL}", ARGV[i]) end
return 1`;

/**
 * One change: what has run out ends, `work` is done, those at the front are admitted; then `work`'s answer is given. Begins again if
 * another client was faster: then that one has succeeded.
 */
async function changeRecord<T>(
  redis: Redis,
  key: string,
  work: (record: KeyRecord, now: number) => () => T,
): Promise<T> {
  for (;;) {
    const { text, record, now } = await readRecord(redis, key);
    const answer = work(record, now);
    const granted = grantWaiters(record, now).map(({ claim }) => publicTag(claim.id));
    const values = [text, now, JSON.stringify(record), lifetimeMs(record, now), ...granted];
    if ((await redis.eval(COMPARE_AND_SET, 1, PREFIX + key, ...values)) === 1) return answer();
  }
}

/** Gives tokens to the claims at the front that have none, and returns these. */
function grantWaiters(record: KeyRecord, now: number): QueueEntry[] {
  const admitted = record.entries.slice(0, countAdmitted(record.entries)).filter(({ token }) => token === 0);
  for (const entry of admitted) {
    entry.token = nextToken(record.lastToken, BigInt(entry.floor), now * 1_000);
    record.lastToken = entry.token + entry.claim.tokenCount - 1;
  }
  return admitted;
}

/** The store deletes a record when its clock has passed all leases, tombstones and tokens in it. */
function lifetimeMs({ entries, lastToken, tombstones }: KeyRecord, now: number): number {
  const leases = entries.map(({ expiresAt }) => expiresAt);
  const tokenEnd = Math.ceil(lastToken / 1_000) + MAX_CHANGE_MS;
  return Math.max(now, tokenEnd, ...leases, ...Object.values(tombstones)) - now + 1;
}

function place(record: KeyRecord, { locks: [spec], floor, ...claim }: Claim, now: number): void {
  if (!acceptsFloor(record.lastToken, floor, now * 1_000))
    throw new StoreRefusedError("pushing: the floor is ahead of time");
  const expiresAt = now + Number(claim.ttlMs);
  const entries = [...record.entries, { ...spec, claim, floor: String(floor), enqueuedAt: now, expiresAt, token: 0 }];
  if (claim.wait || countAdmitted(entries) === entries.length) record.entries = entries;
}

function findEntry({ entries }: KeyRecord, { id }: Claim): QueueEntry | undefined {
  return entries.find((entry) => entry.claim.id === id);
}

function toAnswer(entry: QueueEntry | undefined, now: number): Answer {
  if (entry === undefined) return { state: "none" };
  const remainingMs = entry.expiresAt - now;
  if (entry.token === 0) return { state: "waiting", remainingMs, recheckMs: RECHECK_MS };
  return { state: "held", token: BigInt(entry.token), tokenCount: entry.claim.tokenCount, remainingMs };
}

async function listKeys(redis: Redis, prefix: string): Promise<string[]> {
  const keys = new Set<string>();
  for await (const found of redis.scanStream({ match: `${PREFIX}*`, count: 1_000 }))
    for (const name of found as string[]) keys.add(name.slice(PREFIX.length));
  return [...keys].filter((key) => key.startsWith(prefix)).sort();
}

/** What tools see: the public tag instead of the id, which is a secret. */
function toView(entry: QueueEntry, now: number): ClaimView {
  const { key, permits, limit, floor, enqueuedAt } = entry;
  const { id, ...claim } = entry.claim;
  const answer = toAnswer(entry, now);
  const locks: ClaimView["locks"] = [{ key, permits, limit }];
  return { ...claim, locks, floor: BigInt(floor), tag: publicTag(id), answer, ageMs: now - enqueuedAt };
}

function toPage(views: readonly ClaimView[], { max, after }: ListOptions): Page<ClaimView> {
  const start = views.findIndex(({ tag }) => tag === after) + 1; // 0 without a cursor
  const items = views.slice(start, start + max);
  const next = views.length > start + max ? items.at(-1)?.tag : undefined;
  return next === undefined ? { items } : { items, next };
}
