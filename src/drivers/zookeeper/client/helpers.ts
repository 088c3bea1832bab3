/** Small recipes of several requests that know nothing of locks. */

import { hasCode } from "./errors.ts";
import type { Created, CreateOptions } from "./operations.ts";
import type { Acl } from "./records.ts";
import type { ZooKeeper } from "./zookeeper.ts";

/** The servers may remove an empty container between our making it and our using it. */
const MAX_CREATE_TRIES = 5;
/** A name that no place has. */
export const UNUSED_NAME = "no-such-place";
/** So many requests of a recipe are under way at once. */
const MAX_CONCURRENT = 256;

/**
 * Makes a node and all above it, as far as they are not there, from below: who may not make what exists already (the root
 * of the servers, mostly) is not stopped by that.
 */
export function makePath(zk: Pick<ZooKeeper, "create" | "exists">, path: string, acl: readonly Acl[]): Promise<void> {
  return makeAll(zk, path, (ancestor) => zk.create(ancestor, { acl }));
}

/** The same with containers. @throws ZooKeeperError NO_AUTH also if we may not delete in one that was to be made */
export function makeContainers(zk: ZooKeeper, path: string, acl: readonly Acl[]): Promise<void> {
  return makeAll(zk, path, (ancestor) => makeContainer(zk, ancestor, acl));
}

/**
 * The servers remove a container that has no child any more, but one that never had any stays for ever. So it is made
 * together with a child that goes at once: all that, or nothing.
 */
async function makeContainer(zk: ZooKeeper, path: string, acl: readonly Acl[]): Promise<void> {
  const child = `${path}/${UNUSED_NAME}`;
  await zk.multi([
    { kind: "create", path, mode: "container", acl },
    { kind: "create", path: child, mode: "ephemeral", acl },
    { kind: "delete", path: child },
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
      if (hasCode(error, "NODE_EXISTS")) return;
      if (hasCode(error, "NO_AUTH") && (await zk.exists(path)) !== null) return;
      if (!hasCode(error, "NO_NODE") || path === "/" || tries === MAX_CREATE_TRIES) throw error;
    }
    await makeAll(zk, path.slice(0, path.lastIndexOf("/")) || "/", make);
  }
}

/** Makes a node below a container, which is made if it is not there, and so is all above it: the servers remove them again. */
export async function createBelow(
  zk: ZooKeeper,
  parentPath: string,
  name: string,
  options: CreateOptions & { readonly acl: readonly Acl[] },
): Promise<Created> {
  for (let tries = 1; ; tries++) {
    try {
      return await zk.create(`${parentPath}/${name}`, options);
    } catch (error) {
      // refused, so nothing was made: this is another request, not the same one again
      if (!hasCode(error, "NO_NODE") || tries === MAX_CREATE_TRIES) throw error;
      await makeContainers(zk, parentPath, options.acl);
    }
  }
}

/** The names below a node; none if there is no such node. */
export async function listChildren(zk: ZooKeeper, path: string): Promise<readonly string[]> {
  try {
    return (await zk.children(path)).names;
  } catch (error) {
    if (hasCode(error, "NO_NODE")) return [];
    throw error;
  }
}

/** What `request` finds of these, in their order, some of them at once; stops when `enough` says so. @throws the signal's reason */
export async function collect<T, R>(
  items: readonly T[],
  request: (item: T) => Promise<readonly R[]>,
  { signal, isEnough }: { readonly signal: AbortSignal | undefined; isEnough?(results: readonly R[]): boolean },
): Promise<R[]> {
  const results: R[] = [];
  for (let start = 0; start < items.length && isEnough?.(results) !== true; start += MAX_CONCURRENT) {
    signal?.throwIfAborted();
    for (const batch of await Promise.all(items.slice(start, start + MAX_CONCURRENT).map(request)))
      results.push(...batch);
  }
  return results;
}

/** Settles when this turn of the event loop is over: for a request that may not be needed any more by then. */
export function nextTurn(): Promise<void> {
  return new Promise((resolve) => setImmediate(resolve));
}
