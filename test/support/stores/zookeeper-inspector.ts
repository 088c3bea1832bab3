// The raw state of a ZooKeeper: its nodes as they stand there, read by a client that takes no lock, and by rules written
// down here once more, so that a fault in the driver's own is seen.

import { setTimeout as delay } from "node:timers/promises";
import { hasCode } from "../../../src/drivers/zookeeper/client/errors.ts";
import type { ZooKeeper } from "../../../src/drivers/zookeeper/client/zookeeper.ts";
import type { StoredEntry, StoreView } from "./store-inspector.ts";
import { findViolations } from "./store-inspector.ts";

const ALL_PERMITS_VALUE = 2 ** 30;
/** Between the making of a queue's folder and of the first place in it. */
const SETTLE_MS = 2_000;
/** `_c_<claim>-`, perhaps permits and limit, the recipe, and the server's number. */
const NODE_PATTERN = /^_c_(.+?)-(?:p(\d+)\.(\d+)-)?(lock-|__READ__|__WRIT__)(-?\d{9,10})$/;

export interface InspectedNodes {
  /** Where to look: this node and all below it. */
  readonly root: string;
  /** Nodes that are meant to stay or to be no place: roots, and what a test has made by hand. */
  readonly expected?: ReadonlySet<string>;
  /** Not looked at, nor anything below: other programs keep there what is theirs. */
  readonly foreignPaths?: ReadonlySet<string>;
}

/** Everything that is wrong with the nodes of a ZooKeeper, in words; empty if nothing is. */
export async function findZooKeeperViolations(zk: ZooKeeper, nodes: InspectedNodes): Promise<string[]> {
  const view = await readStoreView(zk, nodes);
  const endless = new Set(view.withoutExpiry);
  // those that are still so after a moment
  for (const end = performance.now() + SETTLE_MS; endless.size > 0 && performance.now() < end; await delay(20)) {
    const now = new Set((await readStoreView(zk, nodes)).withoutExpiry);
    for (const path of endless) if (!now.has(path)) endless.delete(path);
  }
  return findViolations({ ...view, withoutExpiry: [...endless] });
}

interface QueueNode {
  readonly name: string;
  readonly claim: string;
  readonly permits: number;
  readonly limit: number;
  readonly recipe: "lock" | "readWrite";
  readonly number: number;
}

async function readStoreView(
  zk: ZooKeeper,
  { root, expected = new Set(), foreignPaths = new Set() }: InspectedNodes,
): Promise<StoreView> {
  const view = { entries: [] as StoredEntry[], withoutExpiry: [] as string[], orphans: [] as string[] };
  const isExpected = (path: string): boolean =>
    path === "/" ||
    path === root ||
    [...expected].some((expectedPath) => expectedPath === path || expectedPath.startsWith(`${path}/`));

  async function walk(folder: string): Promise<void> {
    const names = await childNames(zk, folder);
    const nodes: QueueNode[] = [];
    await Promise.all(
      names.map(async (name) => {
        const path = folder === "/" ? `/${name}` : `${folder}/${name}`;
        if (path === "/zookeeper" || foreignPaths.has(path)) return;
        const stat = await zk.exists(path);
        if (stat === null) return; // it has gone meanwhile
        const node = parseNodeName(name);
        if (stat.ephemeralOwner !== 0n) {
          if (node !== null) nodes.push(node);
          else if (!isExpected(path)) view.orphans.push(path);
          return;
        }
        // a container never tells what it is; the servers remove it once it has had a child and has none any more
        if ((node !== null || stat.cversion === 0) && !isExpected(path)) view.withoutExpiry.push(path);
        await walk(path);
      }),
    );
    for (const recipe of ["lock", "readWrite"] as const) {
      // two recipes in one folder do not see each other, and each admits its own
      view.entries.push(
        ...toStoredEntries(
          folder,
          nodes.filter((node) => node.recipe === recipe),
        ),
      );
    }
  }

  await walk(root);
  return view;
}

/** From the front, as long as the permits in use and a place's own fit into its own limit. */
function toStoredEntries(folder: string, nodes: readonly QueueNode[]): StoredEntry[] {
  // numbers wrap around; a writer of Curator's and the reader that it turns into have the same one
  const queue = nodes.toSorted(
    (node, otherNode) => (node.number - otherNode.number) | 0 || otherNode.permits - node.permits,
  );
  let used = 0;
  let isOpen = true;
  return queue.map(({ claim, permits, limit }): StoredEntry => {
    isOpen &&= used + permits <= limit;
    if (isOpen) used += permits;
    return { claim, key: decodeURIComponent(folder), permits, limit, state: isOpen ? "held" : "waiting" };
  });
}

function parseNodeName(name: string): QueueNode | null {
  const match = NODE_PATTERN.exec(name);
  if (match === null) return null;
  const [, claim, permits, limit, kind, number] = match as unknown as [
    string,
    string,
    string?,
    string?,
    string?,
    string?,
  ];
  const defaultPermits = kind === "__READ__" ? 1 : ALL_PERMITS_VALUE;
  return {
    name,
    claim,
    permits: Number(permits ?? defaultPermits),
    limit: Number(limit ?? ALL_PERMITS_VALUE),
    recipe: kind === "lock-" ? "lock" : "readWrite",
    number: Number(number),
  };
}

async function childNames(zk: ZooKeeper, path: string): Promise<readonly string[]> {
  try {
    return (await zk.children(path)).names;
  } catch (error) {
    // it has gone meanwhile, or is not for this client to read
    if (hasCode(error, "NO_NODE") || hasCode(error, "NO_AUTH")) return [];
    throw error;
  }
}
