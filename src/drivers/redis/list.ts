/** Lists claims for `holdfast ls` and similar tools: key by key, each queue from its front, in pages. */

import type { Answer, ClaimView, ListOptions, ListQuery, LockSpec, Page } from "../../spi/driver.ts";
import { chunk, toPage } from "../../util/chunk.ts";
import { publicTag } from "../../util/ids.ts";
import { ALL_BUCKETS, toBucket, toRoutingKey } from "./key-names.ts";
import LIST from "./lua/list.lua";
import LIST_KEYS from "./lua/list_keys.lua";
import type { RunScript } from "./script-codec.ts";

/** Queues read in one call, and waiting entries read of each. */
const QUEUES_PER_CALL = 64;
const WAITING_PER_CALL = 128;
/** Fields of one claim in a reply of list.lua. */
const FIELDS_PER_CLAIM = 12;

/**
 * `member`: a key with entries; followed by "\0" and an owner, a claim over several keys that may not be in that queue
 * yet.
 */
interface Member {
  readonly bucket: string;
  readonly member: string;
}

/**
 * A page of the live claims that match the query. If the claim of the cursor has ended, the list starts at the
 * beginning.
 */
export async function listClaims(
  runScript: RunScript,
  namePrefix: string,
  query: ListQuery,
  { max, after }: ListOptions,
  isCluster: boolean,
): Promise<Page<ClaimView>> {
  const lister = new ClaimLister(runScript, namePrefix, after, max + 1, isCluster);
  if (query.key !== undefined) await lister.readQueue(query.key);
  else await lister.readKeys(query.prefix);
  if (after !== undefined && !lister.hasFoundCursor) {
    return listClaims(runScript, namePrefix, query, { max }, isCluster);
  }
  return toPage(lister.views, max);
}

class ClaimLister {
  readonly views: ClaimView[] = [];
  hasFoundCursor = false;
  readonly #seenTags = new Set<string>();
  readonly #runScript: RunScript;
  readonly #namePrefix: string;
  readonly #after: string | undefined;
  readonly #max: number;
  /** One call reads only one bucket then. */
  readonly #isCluster: boolean;

  constructor(runScript: RunScript, namePrefix: string, after: string | undefined, max: number, isCluster: boolean) {
    this.#isCluster = isCluster;
    this.#runScript = runScript;
    this.#namePrefix = namePrefix;
    this.#after = after;
    this.#max = max;
  }

  get #isFull(): boolean {
    return this.views.length >= this.#max;
  }

  readQueue(key: string): Promise<void> {
    return this.#readQueues([{ bucket: toBucket(key), member: key }]);
  }

  /** Reads the queues of all keys that begin with the prefix, in the order of their names. */
  async readKeys(prefix: string): Promise<void> {
    const buckets = this.#isCluster ? ALL_BUCKETS.map((bucket) => [bucket]) : [ALL_BUCKETS];
    const members = (await Promise.all(buckets.map((group) => this.#readMembers(group, prefix)))).flat();
    const sortable = members.map((entry) => ({ entry, name: Buffer.from(entry.member) }));
    sortable.sort((left, right) => Buffer.compare(left.name, right.name));
    await this.#readQueues(sortable.map(({ entry }) => entry));
  }

  /** All members of these buckets: iterates over their hashes, a step of each in one call. */
  async #readMembers(buckets: readonly string[], prefix: string): Promise<readonly Member[]> {
    const members = new Map<string, Member>();
    let cursors: (readonly [bucket: string, cursor: string])[] = buckets.map((bucket) => [bucket, "0"]);
    // ends: HSCAN returns the cursor 0 after a complete iteration, and the query's signal ends the calls before that
    while (cursors.length > 0) {
      const routingKey = toRoutingKey(this.#namePrefix, buckets[0] as string);
      const args = [this.#namePrefix, prefix, ...cursors.flat()];
      const replies = (await this.#runScript(LIST_KEYS, routingKey, args)) as readonly unknown[][];
      const next: (readonly [string, string])[] = [];
      for (const [index, [cursor, ...found]] of replies.entries()) {
        const [bucket] = cursors[index] as readonly [string, string];
        for (const member of found) members.set(`${bucket}${String(member)}`, { bucket, member: String(member) });
        if (String(cursor) !== "0") next.push([bucket, String(cursor)]);
      }
      cursors = next;
    }
    return [...members.values()];
  }

  /** Reads these queues, each to its end, until the list is full. */
  async #readQueues(entries: readonly Member[]): Promise<void> {
    // the first waiting entry to read of the queue at `position`
    let firstWaiting = 0;
    for (let position = 0; position < entries.length && !this.#isFull; ) {
      const batch = entries.slice(position, position + (this.#isCluster ? 1 : QUEUES_PER_CALL));
      const { now, queues } = await this.#readBatch(batch, firstWaiting);
      const unfinished = queues.findIndex(([hasMore]) => String(hasMore) === "1");
      const readCount = unfinished === -1 ? queues.length : unfinished + 1;
      for (const [index, [, ...fields]] of queues.slice(0, readCount).entries()) {
        const key = (batch[index] as Member).member.split("\0")[0] as string;
        for (const claimFields of chunk(fields, FIELDS_PER_CLAIM)) this.#addView(claimFields.map(String), key, now);
      }
      firstWaiting = unfinished === -1 ? 0 : (unfinished === 0 ? firstWaiting : 0) + WAITING_PER_CALL;
      position += unfinished === -1 ? batch.length : unfinished;
    }
  }

  /** One call for these queues. Each reply begins with "1" if the queue has more entries. */
  async #readBatch(
    batch: readonly Member[],
    firstWaiting: number,
  ): Promise<{ readonly now: number; readonly queues: readonly (readonly unknown[])[] }> {
    const args = batch.flatMap(({ bucket, member }, index) => {
      const [key = "", owner] = member.split("\0");
      return [bucket, key, owner === undefined ? String(index === 0 ? firstWaiting : 0) : `@${owner}`];
    });
    const routingKey = toRoutingKey(this.#namePrefix, (batch[0] as Member).bucket);
    const reply = await this.#runScript(LIST, routingKey, [this.#namePrefix, String(WAITING_PER_CALL), "", ...args]);
    const [now, ...queues] = reply as [unknown, ...unknown[][]];
    return { now: Number(now), queues };
  }

  #addView(fields: readonly string[], key: string, now: number): void {
    const tag = publicTag(fields[0] as string);
    if (this.#isFull || this.#seenTags.has(tag)) return;
    this.#seenTags.add(tag);
    if (this.#after === undefined || this.hasFoundCursor) this.views.push(toClaimView(fields, tag, key, now));
    else this.hasFoundCursor = tag === this.#after;
  }
}

function toClaimView(fields: readonly string[], tag: string, key: string, now: number): ClaimView {
  const [, expiresAt, ttl, token, tokens, floor, createdAt, label = "", waitFlag, permits, limit, json] = fields;
  const ttlMs = Number(ttl);
  const remainingMs = Math.min(Number(expiresAt) - now, ttlMs);
  const answer: Answer =
    token === "0"
      ? { state: "waiting", remainingMs, recheckMs: Math.max(remainingMs, 1) }
      : { state: "held", token: BigInt(token as string), tokenCount: Number(tokens), remainingMs };
  return {
    tag,
    locks: decodeLocks(json as string, { key, permits: Number(permits), limit: Number(limit) }),
    ttlMs,
    tokenCount: Number(tokens),
    floor: BigInt(floor as string),
    wait: waitFlag === "1",
    label,
    answer,
    ageMs: Math.max(now - Number(createdAt), 0),
  };
}

function decodeLocks(json: string, single: LockSpec): ClaimView["locks"] {
  if (json === "") return [single];
  const rows = JSON.parse(json) as [string, string, string, string][];
  return rows.map(([, key, permits, limit]): LockSpec => ({ key, permits: Number(permits), limit: Number(limit) })) as [
    LockSpec,
    ...LockSpec[],
  ];
}
