// A driver that pushes: a document for each key in Redis, changed by compare-and-set, and a channel on which every change
// names the claims that it has granted. docs/write-a-driver.md shows this file as it stands.

import type { Answer, Claim, ClaimView, Driver, DriverEvents } from "holdfast/driver";
import { publicTag } from "holdfast/driver";
import { Redis } from "ioredis";
import type { LockDocument, QueueEntry } from "./document-driver.ts";
import { documentDriver, MAX_CHANGE_MS, TRAITS, toPage } from "./document-driver.ts";
import { formatDocument, parseDocument } from "./file-document.ts";

const PREFIX = "lock:";
const CHANNEL = "lock-grants";

/** Pushes may be lost, and none is sent when a lease ends: so waiting claims are rechecked at this interval. */
const RECHECK_MS = 500;

/** ARGV: the document as it was read, and when; what replaces it, and for how long; the tags of the claims that are granted. */
const COMPARE_AND_SET = `
local time = redis.call("TIME")
if time[1] * 1000 + time[2] / 1000 - ARGV[2] > ${MAX_CHANGE_MS} then return redis.error_reply("ERR the change is too late") end
if (redis.call("GET", KEYS[1]) or "") ~= ARGV[1] then return 0 end
redis.call("SET", KEYS[1], ARGV[3], "PX", ARGV[4])
for i = 5, #ARGV do redis.call("PUBLISH", "${CHANNEL}", ARGV[i]) end
return 1`;

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
  const driverOf = (key: string): Driver =>
    documentDriver({ change: async (work) => changeDocument(redis(), key, work) });
  const driverFor = ({ locks: [{ key }] }: Claim): Driver => driverOf(key);

  const note = ({ id }: Claim, answer: Answer): Answer => {
    if (answer.state === "waiting") return { ...answer, recheckMs: RECHECK_MS };
    waiting.delete(publicTag(id));
    return answer;
  };

  return {
    name: "pushing",

    async open(events) {
      connections = await connect(url, events, (tag) => {
        const id = waiting.get(tag);
        if (id !== undefined) events.recheck(id);
      });
      return { ...TRAITS, durability: "process" }; // a Redis need not keep anything across a restart
    },

    async close() {
      for (const connection of connections) connection.disconnect();
      connections = [];
    },

    async claim(claim) {
      waiting.set(publicTag(claim.id), claim.id); // before the call: the push may be faster than the answer
      return note(claim, await driverFor(claim).claim(claim));
    },

    renew: (claims) =>
      Promise.all(
        claims.map(async (claim) => {
          const [answer] = await driverFor(claim).renew([claim]);
          return answer && note(claim, answer);
        }),
      ),

    async release(releases) {
      for (const { claim } of releases) waiting.delete(publicTag(claim.id));
      const results = await Promise.all(releases.map((release) => driverFor(release.claim).release([release])));
      return results.map(([existed]) => existed === true);
    },

    forget: ({ id }) => void waiting.delete(publicTag(id)),

    async list({ prefix, key }, options) {
      const keys = key === undefined ? await listKeys(redis(), prefix) : [key];
      const pages = await Promise.all(keys.map((one) => driverOf(one).list({ key: one }, { max: Infinity })));
      const views = pages.flatMap<ClaimView>(({ items }) => items);
      return toPage(views, options);
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

/** Reads, changes and replaces the document of a key, again if another client was faster; then that one has succeeded. */
async function changeDocument<T>(
  redis: Redis,
  key: string,
  work: (document: LockDocument, nowMs: number) => T,
): Promise<T> {
  for (;;) {
    const [text, [seconds, micros]] = await Promise.all([redis.get(PREFIX + key), redis.time()]);
    const now = Math.floor(Number(seconds) * 1_000 + Number(micros) / 1_000);
    const document = parseDocument(text);
    const waiters = listEntries(document).filter(({ token }) => token === 0);
    const result = work(document, now);
    const granted = waiters.filter(({ token }) => token !== 0).map(({ claim }) => publicTag(claim.id));
    const values = [text ?? "", now, formatDocument(document), lifetimeMs(document, now), ...granted];
    if ((await redis.eval(COMPARE_AND_SET, 1, PREFIX + key, ...values)) === 1) return result;
  }
}

/** The store deletes a document when the clock has passed all leases, tombstones and tokens in it. */
function lifetimeMs(document: LockDocument, now: number): number {
  const leases = listEntries(document).map(({ expiresAt }) => expiresAt);
  const tokens = [...document.queues.values()].map(({ lastToken }) => Math.ceil(lastToken / 1_000) + MAX_CHANGE_MS);
  return Math.max(now, ...leases, ...document.tombstones.values(), ...tokens) - now + 1;
}

function listEntries({ queues }: LockDocument): QueueEntry[] {
  return [...queues.values()].flatMap(({ entries }) => entries);
}

async function listKeys(redis: Redis, prefix: string): Promise<string[]> {
  const keys = new Set<string>();
  for await (const found of redis.scanStream({ match: `${PREFIX}*`, count: 1_000 }))
    for (const name of found as string[]) keys.add(name.slice(PREFIX.length));
  return [...keys].filter((key) => key.startsWith(prefix)).sort();
}
