/** Lists claims for `holdfast ls` and similar tools: key by key, each queue from its front, in pages. */

import type { Answer, ClaimView, ListOptions, ListQuery, LockSpec, Page } from "../../spi/driver.ts";
import { chunk, toPage } from "../../util/chunk.ts";
import { publicTag } from "../../util/ids.ts";
import type { RunScript } from "./script-codec.ts";
import { ALL_BUCKETS, toBucket, toRoutingKey } from "./script-codec.ts";
import { LIST, LIST_KEYS } from "./scripts.ts";

/** Index members of one bucket read in one call. */
const INDEX_PAGE_SIZE = 256;
/** Queues read in one call, and waiting entries read of each. */
const QUEUES_PER_CALL = 64;
const WAITING_PER_CALL = 128;
/** Fields of one claim in a reply of list.lua. */
const FIELDS_PER_CLAIM = 12;

/** `member`: a key; followed by "\0" and an owner, a claim over several keys that may not be in that queue yet. */
interface IndexEntry {
  readonly bucket: string;
  readonly member: string;
}

/** A page of the live claims that match the query. If the claim of the cursor has ended, the list starts at the beginning. */
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

  async readKeys(prefix: string): Promise<void> {
    let afterMember: string | null = "";
    while (afterMember !== null && !this.#isFull) {
      const { entries, lastMember } = await this.#readIndexPage(afterMember, prefix);
      await this.#readQueues(entries);
      afterMember = lastMember;
    }
  }

  /** The next index entries in the order of their names. `lastMember`: continue after it; null: these are the last. */
  async #readIndexPage(
    afterMember: string,
    prefix: string,
  ): Promise<{ readonly entries: readonly IndexEntry[]; readonly lastMember: string | null }> {
    const indexes = await this.#readIndexes(afterMember, prefix);
    // after the last member of a full page, members that the page left out may come before those of other buckets
    let lastComplete: Buffer | null = null;
    const entries: IndexEntry[] = [];
    for (const [index, members] of indexes.entries()) {
      const bucket = ALL_BUCKETS[index] as string;
      for (const member of members) entries.push({ bucket, member: String(member) });
      if (members.length < INDEX_PAGE_SIZE) continue;
      const last = Buffer.from(String(members.at(-1)));
      if (lastComplete === null || Buffer.compare(last, lastComplete) < 0) lastComplete = last;
    }
    const bound = lastComplete;
    const complete =
      bound === null ? entries : entries.filter(({ member }) => Buffer.compare(Buffer.from(member), bound) <= 0);
    complete.sort((left, right) => Buffer.compare(Buffer.from(left.member), Buffer.from(right.member)));
    return { entries: complete, lastMember: bound === null ? null : bound.toString() };
  }

  /** The index members after `afterMember`, for each bucket. */
  async #readIndexes(afterMember: string, prefix: string): Promise<readonly (readonly unknown[])[]> {
    const readBuckets = async (buckets: readonly string[]): Promise<readonly (readonly unknown[])[]> => {
      const args = [this.#namePrefix, prefix, afterMember, String(INDEX_PAGE_SIZE), ...buckets];
      return (await this.#runScript(
        LIST_KEYS,
        toRoutingKey(this.#namePrefix, buckets[0] as string),
        args,
      )) as readonly unknown[][];
    };
    if (!this.#isCluster) return readBuckets(ALL_BUCKETS);
    return (await Promise.all(ALL_BUCKETS.map((bucket) => readBuckets([bucket])))).flat();
  }

  /** Reads these queues, each to its end, until the list is full. */
  async #readQueues(entries: readonly IndexEntry[]): Promise<void> {
    // the first waiting entry to read of the queue at `position`
    let firstWaiting = 0;
    for (let position = 0; position < entries.length && !this.#isFull; ) {
      const batch = entries.slice(position, position + (this.#isCluster ? 1 : QUEUES_PER_CALL));
      const { now, queues } = await this.#readBatch(batch, firstWaiting);
      const unfinished = queues.findIndex(([hasMore]) => String(hasMore) === "1");
      const readCount = unfinished === -1 ? queues.length : unfinished + 1;
      for (const [index, [, ...fields]] of queues.slice(0, readCount).entries()) {
        const key = (batch[index] as IndexEntry).member.split("\0")[0] as string;
        for (const claimFields of chunk(fields, FIELDS_PER_CLAIM)) this.#addView(claimFields.map(String), key, now);
      }
      firstWaiting = unfinished === -1 ? 0 : (unfinished === 0 ? firstWaiting : 0) + WAITING_PER_CALL;
      position += unfinished === -1 ? batch.length : unfinished;
    }
  }

  /** One call for these queues. Each reply begins with "1" if the queue has more entries. */
  async #readBatch(
    batch: readonly IndexEntry[],
    firstWaiting: number,
  ): Promise<{ readonly now: number; readonly queues: readonly (readonly unknown[])[] }> {
    const args = batch.flatMap(({ bucket, member }, index) => {
      const [key = "", owner] = member.split("\0");
      return [bucket, key, owner === undefined ? String(index === 0 ? firstWaiting : 0) : `@${owner}`];
    });
    const routingKey = toRoutingKey(this.#namePrefix, (batch[0] as IndexEntry).bucket);
    const reply = await this.#runScript(LIST, routingKey, [this.#namePrefix, String(WAITING_PER_CALL), ...args]);
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
  const [, expiresAt, ttl, token, tokens, floor, placedAt, label = "", waitFlag, permits, limit, json] = fields;
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
    ageMs: Math.max(now - Number(placedAt), 0),
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
