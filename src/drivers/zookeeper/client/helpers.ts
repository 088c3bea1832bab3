/** Small recipes of several requests, independent of locks. */

import { hasCode } from "./errors.ts";
import type { Created, CreateOptions } from "./operations.ts";
import * as operations from "./operations.ts";
import type { Acl } from "./records.ts";
import type { ZooKeeper } from "./zookeeper.ts";

/** The servers may remove an empty container between its creation and its first use. */
const MAX_CREATE_TRIES = 5;
/** A name that no claim's node has. */
export const UNUSED_NAME = "no-such-place";
/** How many requests of a recipe are in flight at once. */
const MAX_CONCURRENT = 256;

/**
 * Creates a node and its missing ancestors. It tries the node first: a client without the permission to create an
 * ancestor that exists already (usually the root) must not fail.
 */
export function makePath(zk: Pick<ZooKeeper, "create" | "exists">, path: string, acl: readonly Acl[]): Promise<void> {
  return makeAll(zk, path, (ancestor) => zk.create(ancestor, { acl }));
}

/** Creates the client's chroot, if it does not exist. */
export async function makeChroot(zk: ZooKeeper, acl: readonly Acl[]): Promise<void> {
  const unprefixed = {
    create: (path: string, options: CreateOptions = {}) => zk.request(operations.create(path, options)),
    exists: (path: string) => zk.request(operations.exists(path, false, () => undefined)),
  };
  if (zk.chroot !== "/") await makePath(unprefixed, zk.chroot, acl);
}

/**
 * Like makePath(), with containers.
 * @throws ZooKeeperError NO_AUTH also if children of a new container could not be deleted
 */
export function makeContainers(zk: ZooKeeper, path: string, acl: readonly Acl[]): Promise<void> {
  return makeAll(zk, path, (ancestor) => makeContainer(zk, ancestor, acl));
}

/**
 * The servers remove a container whose last child was deleted, but one that never had a child stays for ever. So one
 * transaction creates it together with a child and deletes the child.
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

/**
 * Creates a node below a container. Creates the container and its ancestors if they do not exist, since the servers
 * remove empty ones.
 */
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
      // refused, so nothing was created: the next try is a new request, not a repeated one
      if (!hasCode(error, "NO_NODE") || tries === MAX_CREATE_TRIES) throw error;
      await makeContainers(zk, parentPath, options.acl);
    }
  }
}

/** The names below a node; empty if the node does not exist. */
export async function listChildren(zk: ZooKeeper, path: string): Promise<readonly string[]> {
  try {
    return (await zk.children(path)).names;
  } catch (error) {
    if (hasCode(error, "NO_NODE")) return [];
    throw error;
  }
}

/**
 * The results of `request` for all items, in their order, some requests at once; stops when `isEnough` says so.
 * @throws the signal's reason
 */
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

/** Settles after this turn of the event loop: for a request that may not be needed by then. */
export function nextTurn(): Promise<void> {
  return new Promise((resolve) => setImmediate(resolve));
}
