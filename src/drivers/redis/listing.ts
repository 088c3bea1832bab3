/** What tools see of a store: lines by key, each from its front, read in pages. */

import { tagOf } from "../../ids.ts";
import type { Answer, ClaimView, Hold, ListFilter } from "../../spi/driver.ts";
import type { Run } from "./connection.ts";
import { LINES, LIST } from "./scripts.ts";
import { ALL_BUCKETS, bucketOf, routeOf } from "./words.ts";

/** Members of one bucket's index read at once. */
const INDEX_PAGE = 256;
/** Lines read at once, and of each so many waiting places. */
const LINES_AT_ONCE = 64;
const WAITING_AT_ONCE = 128;
/** Texts of one claim in an answer of list.lua. */
const TEXTS = 12;

/** A key with places ("owner" and "id": one claim over several keys that may not have come there yet). */
interface Entry {
  readonly bucket: string;
  readonly member: string;
}

interface Wanted {
  readonly filter: ListFilter;
  readonly max: number;
  readonly after: string | undefined;
}

/** The live claims that the filter means. A cursor whose claim is gone starts again. */
export async function listed(run: Run, root: string, wanted: Wanted, isCluster = false): Promise<readonly ClaimView[]> {
  const reading = new Reading(run, root, wanted, isCluster);
  if (wanted.filter.key !== undefined) await reading.queueOf(wanted.filter.key);
  else await reading.keysFrom("", wanted.filter.prefix);
  if (wanted.after !== undefined && !reading.foundCursor) {
    return listed(run, root, { ...wanted, after: undefined }, isCluster);
  }
  return reading.views;
}

class Reading {
  readonly views: ClaimView[] = [];
  foundCursor = false;
  readonly #seen = new Set<string>();
  readonly #run: Run;
  readonly #root: string;
  readonly #wanted: Wanted;
  /** A call reads but one bucket. */
  readonly #isCluster: boolean;

  constructor(run: Run, root: string, wanted: Wanted, isCluster: boolean) {
    this.#isCluster = isCluster;
    this.#run = run;
    this.#root = root;
    this.#wanted = wanted;
  }

  get #isFull(): boolean {
    return this.views.length >= this.#wanted.max;
  }

  queueOf(key: string): Promise<void> {
    return this.#lines([{ bucket: bucketOf(key), member: key }], 0);
  }

  async keysFrom(start: string, prefix: string): Promise<void> {
    const answer = await this.#indexes(start, prefix);
    // what lies behind the end of a page that is full may be preceded by what that page left out
    let end: Buffer | null = null;
    const entries: Entry[] = [];
    for (const [at, members] of answer.entries()) {
      const bucket = ALL_BUCKETS[at] as string;
      for (const member of members) entries.push({ bucket, member: String(member) });
      if (members.length < INDEX_PAGE) continue;
      const last = Buffer.from(String(members.at(-1)));
      if (end === null || Buffer.compare(last, end) < 0) end = last;
    }
    const bound = end;
    const known =
      bound === null ? entries : entries.filter(({ member }) => Buffer.compare(Buffer.from(member), bound) <= 0);
    known.sort((one, other) => Buffer.compare(Buffer.from(one.member), Buffer.from(other.member)));
    await this.#lines(known, 0);
    if (bound !== null && !this.#isFull) await this.keysFrom(bound.toString(), prefix);
  }

  /** Of each bucket what its index has behind `start`. */
  async #indexes(start: string, prefix: string): Promise<readonly (readonly unknown[])[]> {
    const read = async (buckets: readonly string[]): Promise<readonly (readonly unknown[])[]> => {
      const words = [this.#root, prefix, start, String(INDEX_PAGE), ...buckets];
      return (await this.#run(LINES, routeOf(this.#root, buckets[0] as string), words)) as readonly unknown[][];
    };
    if (!this.#isCluster) return read(ALL_BUCKETS);
    return (await Promise.all(ALL_BUCKETS.map((bucket) => read([bucket])))).flat();
  }

  /** Reads these lines, the first one from its waiting place `from` on. */
  async #lines(entries: readonly Entry[], from: number): Promise<void> {
    if (entries.length === 0 || this.#isFull) return;
    const part = entries.slice(0, this.#isCluster ? 1 : LINES_AT_ONCE);
    const words = part.flatMap(({ bucket, member }, at) => {
      const [key = "", owner] = member.split("\0");
      return [bucket, key, owner === undefined ? String(at === 0 ? from : 0) : `@${owner}`];
    });
    const first = part[0] as Entry;
    const most = String(WAITING_AT_ONCE);
    const route = routeOf(this.#root, first.bucket);
    const answer = (await this.#run(LIST, route, [this.#root, most, ...words])) as [unknown, ...unknown[][]];
    const [now, ...lines] = answer;
    for (const [at, [more, ...texts]] of lines.entries()) {
      const key = (part[at] as Entry).member.split("\0")[0] as string;
      for (let of = 0; of < texts.length; of += TEXTS)
        this.#add(texts.slice(of, of + TEXTS).map(String), key, Number(now));
      if (String(more) === "1") return this.#lines(entries.slice(at), (at === 0 ? from : 0) + WAITING_AT_ONCE);
    }
    return this.#lines(entries.slice(part.length), 0);
  }

  #add(texts: readonly string[], key: string, now: number): void {
    const { after } = this.#wanted;
    const tag = tagOf(texts[0] as string);
    if (this.#isFull || this.#seen.has(tag)) return;
    this.#seen.add(tag);
    if (after === undefined || this.foundCursor) this.views.push(viewOf(texts, tag, key, now));
    else this.foundCursor = tag === after;
  }
}

function viewOf(texts: readonly string[], tag: string, key: string, now: number): ClaimView {
  const [, expires, ttl, token, tokens, floor, placed, label = "", waits, permits, limit, json] = texts;
  const ttlMs = Number(ttl);
  const leftMs = Math.min(Number(expires) - now, ttlMs);
  const answer: Answer =
    token === "0"
      ? { state: "waiting", ttlMs: leftMs, recheckMs: Math.max(leftMs, 1) }
      : { state: "held", token: BigInt(token as string), tokens: Number(tokens), ttlMs: leftMs };
  return {
    tag,
    holds: holdsOf(json as string, { key, permits: Number(permits), limit: Number(limit) }),
    ttlMs,
    tokens: Number(tokens),
    floor: BigInt(floor as string),
    wait: waits === "1",
    label,
    answer,
    ageMs: Math.max(now - Number(placed), 0),
  };
}

function holdsOf(json: string, only: Hold): ClaimView["holds"] {
  if (json === "") return [only];
  const rows = JSON.parse(json) as [string, string, string, string][];
  return rows.map(([, key, permits, limit]): Hold => ({ key, permits: Number(permits), limit: Number(limit) })) as [
    Hold,
    ...Hold[],
  ];
}
