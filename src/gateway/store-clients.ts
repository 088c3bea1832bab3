/** The clients by which a gateway reaches its store. */

import type { AccessControl, Principal } from "../auth/access-control.ts";
import { ANONYMOUS, AUTH_FAILED } from "../auth/access-control.ts";
import type { Client } from "../client/client.ts";
import { RequestError } from "../server/request-error.ts";

export interface StoreClients {
  /** The client for requests of this account. @throws RequestError AUTH if the account has been removed */
  clientFor(principal: Principal): Client;
  /** A client that may see everything: what it sees is filtered for each viewer. */
  clientForAll(): Client;
  /** Closes the clients of removed accounts. */
  revalidatePrincipals(): void;
  /** Closes all. Their claims stay at the store until their leases end, or they are withdrawn before. */
  close(): Promise<void>;
}

/** A store that knows no accounts: all have the same client. */
export class SharedClient implements StoreClients {
  readonly #client: Client;
  #closing: Promise<void> | null = null;

  constructor(client: Client) {
    this.#client = client;
  }

  clientFor(): Client {
    return this.#client;
  }

  clientForAll(): Client {
    return this.#client;
  }

  revalidatePrincipals(): void {
    // the rights of accounts are checked with each request
  }

  close(): Promise<void> {
    this.#closing ??= closeClient(this.#client);
    return this.#closing;
  }
}

/** A store that applies the rights and limits of accounts: each has a client, whichever of its credentials are in use. */
export class ClientPerAccount implements StoreClients {
  readonly #access: Pick<AccessControl, "forAccount">;
  readonly #createClient: (account: Principal) => Client;
  readonly #clients = new Map<string, Client>();
  #clientForAll: Client | null = null;

  constructor(access: Pick<AccessControl, "forAccount">, createClient: (account: Principal) => Client) {
    this.#access = access;
    this.#createClient = createClient;
  }

  clientFor({ name }: Principal): Client {
    const existing = this.#clients.get(name);
    if (existing !== undefined) return existing;
    const account = this.#access.forAccount(name);
    // a client of a removed account would stay refused after the account has been added again
    if (!account.isValid) throw new RequestError("AUTH", AUTH_FAILED);
    const client = this.#createClient(account);
    this.#clients.set(name, client);
    return client;
  }

  clientForAll(): Client {
    this.#clientForAll ??= this.#createClient(ANONYMOUS);
    return this.#clientForAll;
  }

  revalidatePrincipals(): void {
    for (const [name, client] of [...this.#clients]) {
      if (this.#access.forAccount(name).isValid) continue;
      this.#clients.delete(name);
      closeClient(client).catch(() => undefined);
    }
  }

  async close(): Promise<void> {
    const clients = [...this.#clients.values(), ...(this.#clientForAll === null ? [] : [this.#clientForAll])];
    this.#clients.clear();
    this.#clientForAll = null;
    await Promise.all(clients.map(closeClient));
  }
}

async function closeClient(client: Client): Promise<void> {
  client.context?.engine.stop();
  await client.driver.close();
}
