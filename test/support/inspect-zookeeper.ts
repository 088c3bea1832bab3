// The raw state of a ZooKeeper: its nodes as they stand there, read by a client that takes no lock, and by rules written
// down here once more, so that a fault in the driver's own is seen.

import { setTimeout as delay } from "node:timers/promises";
import { isRefusal } from "../../src/drivers/zookeeper/client/errors.ts";
import type { ZooKeeper } from "../../src/drivers/zookeeper/client/zookeeper.ts";
import type { StoredPlace, StoreView } from "./inspect.ts";
import { violationsOf } from "./inspect.ts";

const EVERYTHING = 2 ** 30;
/** Between the making of a queue's folder and of the first place in it. */
const MOMENT_MS = 2_000;
/** `_c_<claim>-`, perhaps permits and limit, the recipe, and the server's number. */
const PLACE = /^_c_(.+?)-(?:p(\d+)\.(\d+)-)?(lock-|__READ__|__WRIT__)(-?\d{9,10})$/;

export interface InspectedNodes {
  /** Where to look: this node and all below it. */
  readonly from: string;
  /** Nodes that are meant to stay or to be no place: roots, and what a test has made by hand. */
  readonly expected?: ReadonlySet<string>;
  /** Not looked at, nor anything below: other programs keep there what is theirs. */
  readonly others?: ReadonlySet<string>;
}

/** Everything that is wrong with the nodes of a ZooKeeper, in words; empty if nothing is. */
export async function zookeeperViolations(zk: ZooKeeper, where: InspectedNodes): Promise<string[]> {
  const view = await nodesOf(zk, where);
  const endless = new Set(view.endless);
  // those that are still so after a moment
  for (const end = performance.now() + MOMENT_MS; endless.size > 0 && performance.now() < end; await delay(20)) {
    const now = new Set((await nodesOf(zk, where)).endless);
    for (const path of endless) if (!now.has(path)) endless.delete(path);
  }
  return violationsOf({ ...view, endless: [...endless] });
}

interface Place {
  readonly name: string;
  readonly claim: string;
  readonly permits: number;
  readonly limit: number;
  readonly recipe: "lock" | "readWrite";
  readonly number: number;
}

async function nodesOf(
  zk: ZooKeeper,
  { from, expected = new Set(), others = new Set() }: InspectedNodes,
): Promise<StoreView> {
  const view = { places: [] as StoredPlace[], endless: [] as string[], orphans: [] as string[] };
  const isExpected = (path: string): boolean =>
    path === "/" || path === from || [...expected].some((one) => one === path || one.startsWith(`${path}/`));

  async function walk(folder: string): Promise<void> {
    const names = await namesBelow(zk, folder);
    const found: Place[] = [];
    await Promise.all(
      names.map(async (name) => {
        const path = folder === "/" ? `/${name}` : `${folder}/${name}`;
        if (path === "/zookeeper" || others.has(path)) return;
        const stat = await zk.exists(path);
        if (stat === null) return; // it has gone meanwhile
        const place = placeOf(name);
        if (stat.ephemeralOwner !== 0n) {
          if (place !== null) found.push(place);
          else if (!isExpected(path)) view.orphans.push(path);
          return;
        }
        // a container never tells what it is; the servers remove it once it has had a child and has none any more
        if ((place !== null || stat.cversion === 0) && !isExpected(path)) view.endless.push(path);
        await walk(path);
      }),
    );
    for (const recipe of ["lock", "readWrite"] as const) {
      // two recipes in one folder do not see each other, and each admits its own
      view.places.push(
        ...standing(
          folder,
          found.filter((place) => place.recipe === recipe),
        ),
      );
    }
  }

  await walk(from);
  return view;
}

/** From the front, as long as the permits in use and a place's own fit into its own limit. */
function standing(folder: string, places: readonly Place[]): StoredPlace[] {
  // numbers wrap around; a writer of Curator's and the reader that it turns into have the same one
  const queue = places.toSorted((one, other) => (one.number - other.number) | 0 || other.permits - one.permits);
  let used = 0;
  let isOpen = true;
  return queue.map(({ claim, permits, limit }): StoredPlace => {
    isOpen &&= used + permits <= limit;
    if (isOpen) used += permits;
    return { claim, key: decodeURIComponent(folder), permits, limit, state: isOpen ? "held" : "waiting" };
  });
}

function placeOf(name: string): Place | null {
  const found = PLACE.exec(name);
  if (found === null) return null;
  const [, claim, permits, limit, kind, number] = found as unknown as [
    string,
    string,
    string?,
    string?,
    string?,
    string?,
  ];
  const usual = kind === "__READ__" ? 1 : EVERYTHING;
  return {
    name,
    claim,
    permits: Number(permits ?? usual),
    limit: Number(limit ?? EVERYTHING),
    recipe: kind === "lock-" ? "lock" : "readWrite",
    number: Number(number),
  };
}

async function namesBelow(zk: ZooKeeper, path: string): Promise<readonly string[]> {
  try {
    return (await zk.children(path)).names;
  } catch (error) {
    // it has gone meanwhile, or is not for this client to read
    if (isRefusal(error, "NO_NODE") || isRefusal(error, "NO_AUTH")) return [];
    throw error;
  }
}
