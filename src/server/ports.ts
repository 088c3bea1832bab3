/** Everything a server listens on: the addresses of the lock protocol, and HTTP. */

import { elect } from "./election.ts";
import type { Hub } from "./hub.ts";
import type { Listener } from "./listen.ts";
import { listen } from "./listen.ts";
import type { Look } from "./places.ts";
import { stillThere } from "./places.ts";
import type { Plan } from "./plan.ts";
import type { TlsMaterial } from "./tls.ts";
import type { Web } from "./web.ts";

/** Opens the HTTP port of a server. */
export type OpenWeb = () => Promise<Web>;

export class Ports {
  readonly #plan: Plan;
  readonly #hub: Hub;
  readonly #openWeb: OpenWeb | null;
  readonly #listeners: Listener[] = [];
  readonly #locks: { close(): void }[] = [];
  readonly #looks: Look[] = [];
  #web: Web | null = null;

  constructor(plan: Plan, hub: Hub, openWeb: OpenWeb | null) {
    this.#plan = plan;
    this.#hub = hub;
    this.#openWeb = openWeb;
  }

  get addresses(): readonly string[] {
    return this.#listeners.map(({ address }) => address);
  }

  get httpAddress(): string | null {
    return this.#web?.address ?? null;
  }

  /** @throws Error of the system, naming the address, if one cannot be had */
  async open(): Promise<void> {
    const { addresses, limits, tls } = this.#plan;
    for (const address of addresses) {
      if ("path" in address) this.#locks.push(await socketLock(address.path));
      this.#listeners.push(await listen({ address, hub: this.#hub, limits, tls, log: this.#hub.log }));
      if ("path" in address) this.#looks.push(stillThere(address.path));
    }
    if (this.#openWeb !== null) this.#web = await this.#openWeb();
  }

  /** Why clients do not find this server any more at one of its sockets; null: they do. */
  lost(): string | null {
    for (const look of this.#looks) {
      const why = look();
      if (why !== null) return `nobody can reach this server any more: ${why}`;
    }
    return null;
  }

  /** New connections get this certificate. */
  secure(material: TlsMaterial): void {
    for (const listener of this.#listeners) listener.secure(material);
    this.#web?.secure(material);
  }

  /** Takes no further connection. */
  stop(): void {
    for (const listener of this.#listeners) listener.stop();
    this.#web?.drain();
  }

  /** Settles when all connections have ended. */
  async close(): Promise<void> {
    await Promise.all([...this.#listeners.map((listener) => listener.close()), this.#web?.close()]);
    for (const lock of this.#locks) lock.close();
  }
}

/** Only who holds it may listen on the path, or remove a socket that nobody listens on. */
async function socketLock(path: string): Promise<{ close(): void }> {
  const lock = await elect(`${path}.lock`).catch((error: NodeJS.ErrnoException) => {
    if (error.code !== "ENOENT" && error.code !== "ENOTDIR") throw error;
    throw Object.assign(new Error(`no folder leads to unix:${path}: make it first`, { cause: error }), {
      code: error.code,
    });
  });
  if (lock === null) throw Object.assign(new Error(`another server listens on unix:${path}`), { code: "EADDRINUSE" });
  return lock;
}
