/** Our own server over a socket: as it comes, and in strict order of arrival. */

import type { Lock } from "../../src/client/lock.ts";
import type { LocksOptions } from "../../src/index.ts";
import { connect } from "../../src/index.ts";
import { parsePort } from "../harness/address.ts";
import type { LockImplementation } from "../harness/closed-loop.ts";
import { CACHED } from "./cached.ts";

export function openHoldfast(socket: string): Promise<LockImplementation<Lock>> {
  return openLocks(socket, {});
}

/** With the option `cache`. */
export function openCached(socket: string): Promise<LockImplementation<Lock>> {
  return openLocks(socket, CACHED);
}

/** Without local hand-off: every request stands in the server's line. */
export function openStrict(socket: string): Promise<LockImplementation<Lock>> {
  return openLocks(socket, { order: "strict" });
}

/** Through TLS. @param url of its server */
export function openTls(url: string): Promise<LockImplementation<Lock>> {
  return openLocksByUrl(url, {});
}

function openLocks(socket: string, options: LocksOptions): Promise<LockImplementation<Lock>> {
  const port = parsePort(socket);
  return openLocksByUrl(port === null ? `holdfast+unix:${encodeURI(socket)}` : `holdfast://127.0.0.1:${port}`, options);
}

async function openLocksByUrl(url: string, options: LocksOptions): Promise<LockImplementation<Lock>> {
  const locks = await connect(url, options);
  return {
    acquire: (key) => locks.acquire(key),
    release: (lock) => lock.release(),
    tokenOf: (lock) => lock.token,
    close: () => locks.close(),
  };
}
