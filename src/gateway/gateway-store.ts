/** The store of a gateway, as its requests use it. */

import type { AccessControl, Principal } from "../auth/access-control.ts";
import { authorize } from "../auth/authorize.ts";
import { listVisible } from "../auth/visible-page.ts";
import type { Client } from "../client/client.ts";
import type { ClientContext } from "../client/local-queue.ts";
import { StoreRefusedError, UnsupportedError } from "../errors.ts";
import type { ErrorCode } from "../server/error-codes.ts";
import { ERROR_CODES } from "../server/error-codes.ts";
import { drainingError, RequestError } from "../server/request-error.ts";
import type { ClaimView, Driver, ListQuery, Page, RevokeTarget, Traits } from "../spi/driver.ts";
import { systemErrorCode } from "../util/system-error.ts";
import type { StoreClients } from "./store-clients.ts";
import type { StoreHealth } from "./store-health.ts";

/** How long one call to the store may take: as long as a request may wait. */
const CALL_TIMEOUT_MS = 25_000;

const KEEPS_NO_KEYS =
  "this store keeps numbers or names made of the keys, so it cannot be asked for keys; on PostgreSQL `holdfast doctor` counts its locks";

export interface StoreOptions {
  readonly clients: StoreClients;
  readonly access: Pick<AccessControl, "forAccount">;
  /**
   * The store is the lock server of this process: it applies the rights and limits of accounts itself, and a place in
   * its queues that this run of the gateway does not know is one of an earlier run.
   */
  readonly isOwnServer: boolean;
  /** Learns whether calls succeed. */
  readonly health?: Pick<StoreHealth, "recordSuccess" | "recordFailure" | "markSuspect">;
  /** Milliseconds until a restarted store knows which locks are held; 0: it does. */
  readonly recoveryRemainingMs: () => number;
  /** The program is stopping: nothing may be changed any more. */
  readonly isDraining: () => boolean;
}

export class GatewayStore {
  readonly isOwnServer: boolean;
  readonly #options: StoreOptions;

  constructor(options: StoreOptions) {
    this.isOwnServer = options.isOwnServer;
    this.#options = options;
  }

  /** The open client for requests of this account. @throws RequestError if the store cannot be reached */
  async open(principal: Principal): Promise<ClientContext> {
    return this.#openClient(() => this.#options.clients.clientFor(principal));
  }

  #openForAll(): Promise<ClientContext> {
    return this.#openClient(() => this.#options.clients.clientForAll());
  }

  async #openClient(find: () => Client): Promise<ClientContext> {
    if (this.#options.isDraining()) throw drainingError();
    try {
      return await find().open();
    } catch (error) {
      throw this.refuse(error);
    }
  }

  /** Makes one call to the store. @throws RequestError if it fails, or is not answered in time */
  async call<T>({ engine }: ClientContext, call: () => Promise<T>): Promise<T> {
    try {
      const result = await engine.scheduler.waitForCall(CALL_TIMEOUT_MS, call);
      this.#options.health?.recordSuccess();
      return result;
    } catch (error) {
      throw this.refuse(error);
    }
  }

  /** What a request learns of a call that failed. */
  refuse(error: unknown): RequestError {
    if (this.#options.isDraining()) return drainingError();
    const refusal = toRequestError(error);
    // of an error that is the call's own fault, the message says it
    if (refusal.code === "STORE") this.#options.health?.recordFailure(error);
    else this.#options.health?.markSuspect();
    return refusal;
  }

  /** A page of the claims that this account may see. @throws RequestError */
  async list(principal: Principal, query: ListQuery, max: number, after?: string): Promise<Page<ClaimView>> {
    const context = await this.open(principal);
    const list = (count: number, cursor: string | undefined): Promise<Page<ClaimView>> =>
      this.call(context, () => context.engine.driver.list(query, { max: count, after: cursor }));
    return this.isOwnServer ? list(max, after) : listVisible(list, principal, query, max, after);
  }

  /** At most `max` claims, whoever may see them. @throws RequestError UNSUPPORTED if the store cannot be asked for keys */
  async listAll(query: ListQuery, max: number): Promise<Page<ClaimView>> {
    const context = await this.#openForAll();
    if (context.traits.list === "own") throw new RequestError("UNSUPPORTED", KEEPS_NO_KEYS);
    return this.call(context, () => context.engine.driver.list(query, { max }));
  }

  /** What the store can do. @throws RequestError if it cannot be reached */
  async describe(): Promise<{ readonly driver: Driver; readonly traits: Traits }> {
    const { engine, traits } = await this.#openForAll();
    return { driver: engine.driver, traits };
  }

  /** True if the key was held with that token. @throws RequestError */
  async revoke(principal: Principal, target: RevokeTarget): Promise<boolean> {
    authorize(principal, "revoke", [target.key]);
    const context = await this.open(principal);
    const { driver } = context.engine;
    if (driver.revoke === undefined) throw new RequestError("UNSUPPORTED", "this store cannot revoke");
    const revoke = driver.revoke.bind(driver);
    const [isRevoked] = await this.call(context, () => revoke([target]));
    return isRevoked === true;
  }

  /** The store has not answered whether it has a claim. */
  unknownError(): RequestError {
    return this.#options.recoveryRemainingMs() === 0
      ? new RequestError("STORE", "the store could not be asked about this claim")
      : new RequestError(
          "RECLAIMING",
          "the server is recovering after a restart and does not know yet which locks are held",
        );
  }

  /** The present rights of an account. */
  account(name: string): Principal {
    return this.#options.access.forAccount(name);
  }

  /** To be called after the accounts have changed. */
  revalidatePrincipals(): void {
    this.#options.clients.revalidatePrincipals();
  }

  /** To be called when all requests have ended. */
  close(): Promise<void> {
    return this.#options.clients.close();
  }
}

/** What a client learns of an error of the store. */
function toRequestError(error: unknown): RequestError {
  if (error instanceof RequestError) return error;
  const { message, code, refusal } = error as Error & { readonly code?: unknown; readonly refusal?: unknown };
  if (isErrorCode(refusal)) return new RequestError(refusal, message, error);
  if (error instanceof UnsupportedError) return new RequestError("UNSUPPORTED", message, error);
  if (error instanceof StoreRefusedError) return new RequestError("FATAL", message, error);
  if (isErrorCode(code)) return new RequestError(code, message, error);
  const detail = systemErrorCode(error);
  return new RequestError("STORE", `the store did not answer${detail === undefined ? "" : ` (${detail})`}`, error);
}

function isErrorCode(value: unknown): value is ErrorCode {
  return typeof value === "string" && Object.hasOwn(ERROR_CODES, value);
}
