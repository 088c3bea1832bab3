/** Our own server over a socket: as it comes, and in strict order of arrival. */

import type { Lock } from "../../src/client/lock.ts";
import type { LocksOptions } from "../../src/index.ts";
import { connect } from "../../src/index.ts";
import { portOf } from "../harness/address.ts";
import type { Contestant } from "../harness/workload.ts";

export function openHoldfast(socket: string): Promise<Contestant<Lock>> {
  return open(socket, {});
}

/** Without local hand-off: every request stands in the server's line. */
export function openStrict(socket: string): Promise<Contestant<Lock>> {
  return open(socket, { handoffs: 1 });
}

/** Through TLS. @param url of its server */
export function openSecured(url: string): Promise<Contestant<Lock>> {
  return openUrl(url, {});
}

function open(socket: string, options: LocksOptions): Promise<Contestant<Lock>> {
  const port = portOf(socket);
  return openUrl(port === null ? `holdfast+unix:${encodeURI(socket)}` : `holdfast://127.0.0.1:${port}`, options);
}

async function openUrl(url: string, options: LocksOptions): Promise<Contestant<Lock>> {
  const locks = await connect(url, options);
  return {
    acquire: (key) => locks.acquire(key),
    release: (lock) => lock.release(),
    tokenOf: (lock) => lock.token,
    close: () => locks.close(),
  };
}
