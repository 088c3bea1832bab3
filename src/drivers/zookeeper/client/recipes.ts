/** Small recipes of several requests that know nothing of locks. */

import { isRefusal } from "./errors.ts";
import type { Created, CreateOptions } from "./operations.ts";
import type { Acl } from "./records.ts";
import type { ZooKeeper } from "./zookeeper.ts";

/** The servers may remove an empty container between our making it and our using it. */
const CREATE_TRIES = 5;
/** A name that no place has. */
export const NOBODY = "no-such-place";
/** So many requests of a recipe are under way at once. */
const AT_ONCE = 256;

/**
 * Makes a node and all above it, as far as they are not there, from below: who may not make what exists already (the root
 * of the servers, mostly) is not stopped by that.
 */
export function makePath(zk: Pick<ZooKeeper, "create" | "exists">, path: string, acl: readonly Acl[]): Promise<void> {
  return makeAll(zk, path, (one) => zk.create(one, { acl }));
}

/** The same with containers. @throws ZooKeeperError NO_AUTH also if we may not delete in one that was to be made */
export function makeContainers(zk: ZooKeeper, path: string, acl: readonly Acl[]): Promise<void> {
  return makeAll(zk, path, (one) => makeContainer(zk, one, acl));
}

/**
 * The servers remove a container that has no child any more, but one that never had any stays for ever. So it is made
 * together with a child that goes at once: all that, or nothing.
 */
async function makeContainer(zk: ZooKeeper, path: string, acl: readonly Acl[]): Promise<void> {
  const child = `${path}/${NOBODY}`;
  await zk.multi([
    { do: "create", path, mode: "container", acl },
    { do: "create", path: child, mode: "ephemeral", acl },
    { do: "delete", path: child },
  ]);
}

async function makeAll(
  zk: Pick<ZooKeeper, "exists">,
  path: string,
  make: (path: string) => Promise<unknown>,
): Promise<void> {
  for (let tries = 1; ; tries++) {
    try {
      await make(path);
      return;
    } catch (error) {
      if (isRefusal(error, "NODE_EXISTS")) return;
      if (isRefusal(error, "NO_AUTH") && (await zk.exists(path)) !== null) return;
      if (!isRefusal(error, "NO_NODE") || path === "/" || tries === CREATE_TRIES) throw error;
    }
    await makeAll(zk, path.slice(0, path.lastIndexOf("/")) || "/", make);
  }
}

/** Makes a node below a container, which is made if it is not there, and so is all above it: the servers remove them again. */
export async function createBelow(
  zk: ZooKeeper,
  folder: string,
  name: string,
  options: CreateOptions & { readonly acl: readonly Acl[] },
): Promise<Created> {
  for (let tries = 1; ; tries++) {
    try {
      return await zk.create(`${folder}/${name}`, options);
    } catch (error) {
      // refused, so nothing was made: this is another request, not the same one again
      if (!isRefusal(error, "NO_NODE") || tries === CREATE_TRIES) throw error;
      await makeContainers(zk, folder, options.acl);
    }
  }
}

/** The names below a node; none if there is no such node. */
export async function childrenOf(zk: ZooKeeper, path: string): Promise<readonly string[]> {
  try {
    return (await zk.children(path)).names;
  } catch (error) {
    if (isRefusal(error, "NO_NODE")) return [];
    throw error;
  }
}

/** What `ask` finds of these, in their order, some of them at once; stops when `enough` says so. @throws the signal's reason */
export async function gathered<T, R>(
  items: readonly T[],
  ask: (item: T) => Promise<readonly R[]>,
  { signal, enough }: { readonly signal: AbortSignal | undefined; enough?(found: readonly R[]): boolean },
): Promise<R[]> {
  const found: R[] = [];
  for (let from = 0; from < items.length && enough?.(found) !== true; from += AT_ONCE) {
    signal?.throwIfAborted();
    for (const some of await Promise.all(items.slice(from, from + AT_ONCE).map(ask))) found.push(...some);
  }
  return found;
}

/** Settles when this turn of the event loop is over: for a request that may not be needed any more by then. */
export function turnOver(): Promise<void> {
  return new Promise((resolve) => setImmediate(resolve));
}
