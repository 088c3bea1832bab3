/** What tools see: lines of keys below the root, or of a path, with places that other clients have taken. */

import { admittedCount } from "../../core/line.ts";
import { tagOf } from "../../ids.ts";
import type { Answer, ClaimView, Hold, ListFilter } from "../../spi/driver.ts";
import { isForGood, isRefusal } from "./client/errors.ts";
import { isPath } from "./client/paths.ts";
import { childrenOf, gathered } from "./client/recipes.ts";
import type { Stat } from "./client/records.ts";
import type { ZooKeeper } from "./client/zookeeper.ts";
import { REVOKE, readData } from "./data.ts";
import { fatalOf } from "./fatal.ts";
import type { Lines } from "./lines.ts";
import type { Family, Seat } from "./names.ts";
import { FAMILIES, folderOf, isClaimId, keyOf, lineOf } from "./names.ts";
import type { Places } from "./places.ts";

export interface ListingOptions {
  readonly zk: ZooKeeper;
  readonly root: string;
  readonly family: Family;
  readonly lines: Lines;
  readonly places: Places;
  /** Wall clock, in milliseconds. */
  readonly wall: () => number;
}

interface Wanted {
  readonly filter: ListFilter;
  readonly max: number;
  /** A tag. */
  readonly after: string | undefined;
  readonly signal: AbortSignal | undefined;
}

/**
 * At most `max` claims that the filter means, fronts of queues first, behind the one with the tag `after`. Queues that the
 * servers do not let us read are left out, unless it is the very one that was asked for.
 * @throws FatalDriverError if that, or the folder of all of them, is not for us to read
 */
export async function listed(options: ListingOptions, wanted: Wanted): Promise<readonly ClaimView[]> {
  const { filter, max, after, signal } = wanted;
  signal?.throwIfAborted();
  if (filter.key !== undefined) return queueOf(options, filter.key, wanted);
  const { prefix } = filter;
  const keys = await keysOf(options, prefix).catch(refused);
  const seats = await gathered(
    keys,
    (key) =>
      seatsOf(options, key).catch((error: unknown) => (key !== prefix && isForGood(error) ? [] : refused(error))),
    { signal },
  );
  const views = await gathered(seats.slice(behind(seats, after)), (one) => view(options, one), {
    signal,
    enough: (found) => found.length >= max,
  });
  return views.slice(0, max);
}

/**
 * The queue of one key costs two requests, however long it is: the names of its nodes, and the data of the first one.
 * Where the others stand is in their names; what they contain is not read, but of our own it is known.
 */
async function queueOf(options: ListingOptions, key: string, { max, after, signal }: Wanted): Promise<ClaimView[]> {
  if (!isPath(folderOf(key, options.root)) || key === "" || key === "/") return []; // nobody can hold it
  const seats = await seatsOf(options, key).catch(refused);
  const [first, ...others] = seats.slice(behind(seats, after)).slice(0, max);
  if (first === undefined) return [];
  signal?.throwIfAborted();
  return [...(await view(options, first)), ...others.map((one) => fromName(options, one))];
}

/** 0n and 0 stand for a token and an age that are not known. */
function fromName({ places, zk }: ListingOptions, listed: Listed): ClaimView {
  const own = places.known(listed.seat.id);
  const { label, tokens, floor, wait } = own?.claim ?? { label: "", tokens: 1, floor: 0n, wait: true };
  return { ...viewOf(listed, zk.sessionMs, own?.token ?? 0n, tokens), floor, wait, label, ageMs: 0 };
}

function behind(seats: readonly Listed[], after: string | undefined): number {
  return after === undefined ? 0 : seats.findIndex(({ seat }) => tagOf(seat.id) === after) + 1;
}

function refused(error: unknown): never {
  throw fatalOf(error);
}

/** A place in the line of a key. */
interface Listed {
  readonly key: string;
  readonly seat: Seat;
  readonly isHeld: boolean;
  /** Of a family that is not ours: a line of its own, for which ours is refused. */
  readonly other: Family | null;
}

async function seatsOf({ zk, root, family }: ListingOptions, key: string): Promise<readonly Listed[]> {
  const names = await childrenOf(zk, folderOf(key, root));
  return FAMILIES.flatMap((one) => {
    const { line } = lineOf(names, one);
    const admitted = admittedCount(line);
    return line.map((seat, at) => ({ key, seat, isHeld: at < admitted, other: one === family ? null : one }));
  });
}

/** A prefix that begins with "/" is the beginning of a path, of which only the last folder is searched. */
async function keysOf({ zk, root }: ListingOptions, prefix: string): Promise<string[]> {
  if (!prefix.startsWith("/")) {
    const keys = (await childrenOf(zk, root)).map(keyOf).filter((key) => key !== null);
    return keys.filter((key) => key.startsWith(prefix)).sort();
  }
  const above = prefix.slice(0, prefix.lastIndexOf("/"));
  const paths = (await childrenOf(zk, above || "/")).map((name) => `${above}/${name}`);
  // the server's own node is nobody's key
  return paths.filter((path) => path.startsWith(prefix) && path !== "/zookeeper").sort();
}

/** None: it has gone meanwhile. */
async function view(options: ListingOptions, listed: Listed): Promise<readonly ClaimView[]> {
  const { zk, root, lines, wall } = options;
  const node = await read(zk, `${folderOf(listed.key, root)}/${listed.seat.name}`);
  if (node === null) return [];
  const { data, stat } = node;
  const ours = data === null ? null : readData(data);
  const { tokens, floor, wait } = ours ?? { tokens: 1, floor: 0n, wait: true };
  const label = labelOf(ours?.label ?? null, data, listed);
  const ageMs = Math.max(wall() - stat.ctime, 0);
  return [{ ...viewOf(listed, zk.sessionMs, lines.tokenOf(stat.czxid), tokens), floor, wait, label, ageMs }];
}

function viewOf({ key, seat, isHeld }: Listed, ttlMs: number, token: bigint, tokens: number) {
  const { id, permits, limit } = seat;
  const holds: readonly [Hold] = [{ key, permits, limit }];
  const answer: Answer = isHeld
    ? { state: "held", token, tokens, ttlMs }
    : { state: "waiting", ttlMs, recheckMs: ttlMs };
  return { tag: tagOf(id), holds, ttlMs: "session" as const, tokens, answer };
}

/** Null: it has gone. That it is there may be known also of what is not for us to read: then its data are null. */
async function read(
  zk: ZooKeeper,
  path: string,
): Promise<{ readonly data: Buffer | null; readonly stat: Stat } | null> {
  try {
    return await zk.get(path);
  } catch (error) {
    if (isRefusal(error, "NO_NODE")) return null;
    if (!isForGood(error)) throw error;
  }
  const stat = await zk.exists(path);
  return stat === null ? null : { data: null, stat };
}

/** What is not as usual stands before it; of a place that is not ours what its client wrote there, if it can be shown. */
function labelOf(ours: string | null, data: Buffer | null, { seat, other }: Listed): string {
  const marks: string[] = [];
  // nobody can tell any more whose it was
  if (data?.equals(REVOKE)) marks.push("asked to go");
  else if (ours === null && !isClaimId(seat.id)) marks.push("not Holdfast");
  else if (ours === null) marks.push(data === null ? "data not readable" : "data overwritten");
  if (other !== null) marks.push(`family ${other}`);
  const mark = marks.length > 0 ? `(${marks.join(", ")}) ` : "";
  return `${mark}${ours ?? strangers(data)}`.trimEnd();
}

function strangers(data: Buffer | null): string {
  const text = data === null || data.equals(REVOKE) ? "" : data.toString("utf8");
  return /^[\x20-\x7e]{1,100}$/.test(text) ? text : "";
}
