/** Lists for tools: the queues of keys below the root, or of a path, including nodes of other clients. */

import { countAdmitted } from "../../lock-table/admission.ts";
import type { Answer, ClaimView, ListOptions, ListQuery, LockSpec, Page } from "../../spi/driver.ts";
import { toPage } from "../../util/chunk.ts";
import { publicTag } from "../../util/ids.ts";
import type { RevisionTokens } from "../revision-tokens.ts";
import type { ClaimNodes } from "./claim-nodes.ts";
import { hasCode, isPermanent, toFatalError } from "./client/errors.ts";
import { collect, listChildren } from "./client/helpers.ts";
import { isPath } from "./client/paths.ts";
import type { Stat } from "./client/records.ts";
import type { ZooKeeper } from "./client/zookeeper.ts";
import { decodeData, REVOKE_DATA } from "./node-data.ts";
import type { Family, QueueNode } from "./node-names.ts";
import { FAMILIES, isClaimId, parseKey, parseQueue, toKeyPath } from "./node-names.ts";

export interface ListContext {
  readonly zk: ZooKeeper;
  readonly root: string;
  readonly family: Family;
  readonly tokens: RevisionTokens;
  readonly claimNodes: ClaimNodes;
  /** The wall clock, in milliseconds. */
  readonly wall: () => number;
}

/**
 * A page of the claims that match the query, each queue from its front. Queues that this client has no permission to
 * read are left out, unless the query names exactly that queue.
 * @throws StoreRefusedError if there is no permission to read that queue, or the parent node of all queues
 */
export async function listClaims(
  context: ListContext,
  query: ListQuery,
  options: ListOptions,
): Promise<Page<ClaimView>> {
  const { max, after, signal } = options;
  signal?.throwIfAborted();
  if (query.key !== undefined) return listQueue(context, query.key, options);
  const { prefix } = query;
  const keys = await readKeys(context, prefix).catch(throwFatal);
  const queued = await collect(
    keys,
    (key) =>
      readQueue(context, key).catch((error: unknown) =>
        key !== prefix && isPermanent(error) ? [] : throwFatal(error),
      ),
    { signal },
  );
  const views = await collect(queued.slice(findStart(queued, after)), (item) => readView(context, item), {
    signal,
    isEnough: (results) => results.length > max,
  });
  return toPage(views, max);
}

/**
 * The queue of one key costs two requests, however long it is: the names of its nodes, and the data of the first one.
 * The names of the others show their order. Their data are not read; those of this client's own nodes are known.
 */
async function listQueue(
  context: ListContext,
  key: string,
  { max, after, signal }: ListOptions,
): Promise<Page<ClaimView>> {
  if (!isPath(toKeyPath(key, context.root)) || key === "" || key === "/") return { items: [] }; // no lock can have such a key
  const queued = await readQueue(context, key).catch(throwFatal);
  const start = findStart(queued, after);
  const [firstNode, ...others] = queued.slice(start, start + max);
  if (firstNode === undefined) return { items: [] };
  signal?.throwIfAborted();
  const items = [...(await readView(context, firstNode)), ...others.map((item) => toViewFromName(context, item))];
  const lastNode = others.at(-1) ?? firstNode;
  return queued.length > start + max ? { items, next: publicTag(lastNode.node.id) } : { items };
}

/** An unknown token is 0n, an unknown age 0. */
function toViewFromName({ claimNodes, zk }: ListContext, queued: QueuedNode): ClaimView {
  const ownNode = claimNodes.findById(queued.node.id);
  const { label, tokenCount, floor, wait } = ownNode?.claim ?? { label: "", tokenCount: 1, floor: 0n, wait: true };
  return { ...toView(queued, zk.sessionMs, ownNode?.token ?? 0n, tokenCount), floor, wait, label, ageMs: 0 };
}

function findStart(queued: readonly QueuedNode[], after: string | undefined): number {
  return after === undefined ? 0 : queued.findIndex(({ node }) => publicTag(node.id) === after) + 1;
}

function throwFatal(error: unknown): never {
  throw toFatalError(error);
}

/** A node in the queue of a key. */
interface QueuedNode {
  readonly key: string;
  readonly node: QueueNode;
  readonly isHeld: boolean;
  /**
   * The node's family if it is not this driver's: it forms a queue of its own, and this driver refuses the key because
   * of it.
   */
  readonly otherFamily: Family | null;
}

async function readQueue({ zk, root, family }: ListContext, key: string): Promise<readonly QueuedNode[]> {
  const names = await listChildren(zk, toKeyPath(key, root));
  return FAMILIES.flatMap((candidate) => {
    const { queue } = parseQueue(names, candidate);
    const admittedNodes = countAdmitted(queue);
    return queue.map((node, index) => ({
      key,
      node,
      isHeld: index < admittedNodes,
      otherFamily: candidate === family ? null : candidate,
    }));
  });
}

/** A prefix that begins with "/" is the beginning of a path; only its last parent node is searched. */
async function readKeys({ zk, root }: ListContext, prefix: string): Promise<string[]> {
  if (!prefix.startsWith("/")) {
    const keys = (await listChildren(zk, root)).map(parseKey).filter((key) => key !== null);
    return keys.filter((key) => key.startsWith(prefix)).sort();
  }
  const parentPath = prefix.slice(0, prefix.lastIndexOf("/"));
  const paths = (await listChildren(zk, parentPath || "/")).map((name) => `${parentPath}/${name}`);
  // /zookeeper is the server's own node, not a key
  return paths.filter((path) => path.startsWith(prefix) && path !== "/zookeeper").sort();
}

/** Reads a node; no view if it has been deleted meanwhile. */
async function readView(context: ListContext, queued: QueuedNode): Promise<readonly ClaimView[]> {
  const { zk, root, wall } = context;
  const content = await readNode(zk, `${toKeyPath(queued.key, root)}/${queued.node.name}`);
  if (content === null) return [];
  const { data, stat } = content;
  const ourData = data === null ? null : decodeData(data);
  const { tokens, floor, wait } = ourData ?? { tokens: 1, floor: 0n, wait: true };
  const label = formatLabel(ourData?.label ?? null, data, queued);
  const ageMs = Math.max(wall() - stat.ctime, 0);
  return [{ ...toView(queued, zk.sessionMs, context.tokens.first(stat.czxid), tokens), floor, wait, label, ageMs }];
}

function toView({ key, node, isHeld }: QueuedNode, remainingMs: number, token: bigint, tokenCount: number) {
  const { id, permits, limit } = node;
  const locks: readonly [LockSpec] = [{ key, permits, limit }];
  const answer: Answer = isHeld
    ? { state: "held", token, tokenCount, remainingMs }
    : { state: "waiting", remainingMs, recheckMs: remainingMs };
  return { tag: publicTag(id), locks, ttlMs: "session" as const, tokenCount, answer };
}

/** Null: the node does not exist. If it exists but this client has no permission to read it, its data are null. */
async function readNode(
  zk: ZooKeeper,
  path: string,
): Promise<{ readonly data: Buffer | null; readonly stat: Stat } | null> {
  try {
    return await zk.get(path);
  } catch (error) {
    if (hasCode(error, "NO_NODE")) return null;
    if (!isPermanent(error)) throw error;
  }
  const stat = await zk.exists(path);
  return stat === null ? null : { data: null, stat };
}

/** The label, with marks in front for anything unusual. For a foreign node: the data its client wrote, if printable. */
function formatLabel(ourLabel: string | null, data: Buffer | null, { node, otherFamily }: QueuedNode): string {
  const marks: string[] = [];
  // the mark has replaced the data, so the owner's label is lost
  if (data?.equals(REVOKE_DATA)) marks.push("revoked");
  else if (ourLabel === null && !isClaimId(node.id)) marks.push("not Holdfast");
  else if (ourLabel === null) marks.push(data === null ? "data not readable" : "data overwritten");
  if (otherFamily !== null) marks.push(`family ${otherFamily}`);
  const mark = marks.length > 0 ? `(${marks.join(", ")}) ` : "";
  return `${mark}${ourLabel ?? formatForeignData(data)}`.trimEnd();
}

function formatForeignData(data: Buffer | null): string {
  const text = data === null || data.equals(REVOKE_DATA) ? "" : data.toString("utf8");
  return /^[\x20-\x7e]{1,100}$/.test(text) ? text : "";
}
