/** All listening sockets of a server: those of the lock protocol, and HTTP. */

import { acquireFileLock } from "../../os/file-lock.ts";
import { formatServerUrl } from "../../util/server-url.ts";
import type { OwnershipCheck } from "../ownership-monitor.ts";
import { createPathCheck } from "../ownership-monitor.ts";
import type { LockService } from "../service.ts";
import type { ListenAddress } from "./listen-address.ts";
import type { HttpListener, Listener } from "./listener.ts";
import { listen } from "./listener.ts";
import type { TlsConfig } from "./tls-config.ts";

/** Opens the HTTP listener of a server. */
export type OpenHttp = () => Promise<HttpListener>;

export class Listeners {
  readonly #listenAddresses: readonly ListenAddress[];
  readonly #tls: TlsConfig | null;
  readonly #service: LockService;
  readonly #openHttp: OpenHttp | null;
  readonly #listeners: Listener[] = [];
  readonly #socketLocks: { close(): void }[] = [];
  readonly #ownershipChecks: OwnershipCheck[] = [];
  #httpListener: HttpListener | null = null;

  /** tls: required if an address uses TLS. openHttp: null: HTTP is not served. */
  constructor(
    listenAddresses: readonly ListenAddress[],
    tls: TlsConfig | null,
    service: LockService,
    openHttp: OpenHttp | null,
  ) {
    this.#listenAddresses = listenAddresses;
    this.#tls = tls;
    this.#service = service;
    this.#openHttp = openHttp;
  }

  get addresses(): readonly string[] {
    return this.#listeners.map(({ address }) => address);
  }

  get httpAddress(): string | null {
    return this.#httpListener?.address ?? null;
  }

  /** @throws a system error, naming the address, if listening on one fails */
  async open(): Promise<void> {
    for (const address of this.#listenAddresses) {
      if ("path" in address) this.#socketLocks.push(await lockSocketPath(address.path));
      this.#listeners.push(await listen(address, this.#tls, this.#service));
      if ("path" in address) this.#ownershipChecks.push(createPathCheck(address.path));
    }
    if (this.#openHttp !== null) this.#httpListener = await this.#openHttp();
  }

  /** Why clients can no longer find this server at one of its sockets; null: they can. */
  lostReason(): string | null {
    for (const check of this.#ownershipChecks) {
      const reason = check();
      if (reason !== null) return `clients can no longer reach this server: ${reason}`;
    }
    return null;
  }

  /** New connections use this certificate. */
  replaceCertificate(tlsConfig: TlsConfig): void {
    for (const listener of this.#listeners) listener.replaceCertificate(tlsConfig);
    this.#httpListener?.replaceCertificate(tlsConfig);
  }

  /** Accepts no more connections. */
  stopAccepting(): void {
    for (const listener of this.#listeners) listener.stopAccepting();
    this.#httpListener?.drain();
  }

  /** Settles when all connections have ended. */
  async close(): Promise<void> {
    await Promise.all([...this.#listeners.map((listener) => listener.close()), this.#httpListener?.close()]);
    for (const lock of this.#socketLocks) lock.close();
  }
}

/** The lock that a server needs to listen on the path, or to remove a stale socket there. */
async function lockSocketPath(path: string): Promise<{ close(): void }> {
  const lock = await acquireFileLock(`${path}.lock`).catch((error: NodeJS.ErrnoException) => {
    if (error.code !== "ENOENT" && error.code !== "ENOTDIR") throw error;
    throw Object.assign(
      new Error(`the directory of ${formatServerUrl({ path })} does not exist: create it first`, { cause: error }),
      {
        code: error.code,
      },
    );
  });
  if (lock === null)
    throw Object.assign(new Error(`another server already listens on ${formatServerUrl({ path })}`), {
      code: "EADDRINUSE",
    });
  return lock;
}
