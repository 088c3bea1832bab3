/** The store of a gateway, as its requests use it. */

import type { Principal } from "../auth/access-control.ts";
import { authorize } from "../auth/authorize.ts";
import type { Client } from "../client/client.ts";
import type { ClientContext } from "../client/local-queue.ts";
import { StoreRefusedError, UnsupportedError } from "../errors.ts";
import type { ErrorCode } from "../server/error-codes.ts";
import { ERROR_CODES } from "../server/error-codes.ts";
import { drainingError, RequestError } from "../server/request-error.ts";
import type { ClaimView, ListQuery, Page, RevokeTarget } from "../spi/driver.ts";
import { systemErrorCode } from "../util/system-error.ts";

/** How long one call to the store may take: as long as a request may wait. */
const CALL_TIMEOUT_MS = 25_000;

export interface StoreOptions {
  /**
   * Creates the client for the requests of an account. On a store that knows accounts each has one, so that the store
   * applies their rights and limits; else all have the same.
   */
  readonly createClient: (principal: Principal) => Client;
  /** Milliseconds until a restarted store knows which locks are held; 0: it does. */
  readonly recoveryRemainingMs: () => number;
  /** The program is stopping: nothing may be changed any more. */
  readonly isDraining: () => boolean;
}

export class GatewayStore {
  readonly #options: StoreOptions;
  readonly #clients = new Map<Principal, Client>();

  constructor(options: StoreOptions) {
    this.#options = options;
  }

  /** The open client for requests of this account. @throws RequestError if the store cannot be reached */
  async open(principal: Principal): Promise<ClientContext> {
    if (this.#options.isDraining()) throw drainingError();
    let client = this.#clients.get(principal);
    if (client === undefined) {
      client = this.#options.createClient(principal);
      this.#clients.set(principal, client);
    }
    try {
      return await client.open();
    } catch (error) {
      throw toRequestError(error);
    }
  }

  /** Makes one call to the store. @throws RequestError if it fails, or is not answered in time */
  async call<T>({ engine }: ClientContext, call: () => Promise<T>): Promise<T> {
    try {
      return await engine.scheduler.waitForCall(CALL_TIMEOUT_MS, call);
    } catch (error) {
      throw this.#options.isDraining() ? drainingError() : toRequestError(error);
    }
  }

  /** A page of the claims that this account may see. @throws RequestError */
  async list(principal: Principal, query: ListQuery, max: number, after?: string): Promise<Page<ClaimView>> {
    const context = await this.open(principal);
    return this.call(context, () => context.engine.driver.list(query, { max, after }));
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
      ? new RequestError("STORE", "the server could not query its store about this claim")
      : new RequestError(
          "RECLAIMING",
          "the server is recovering after a restart and does not know yet which locks are held",
        );
  }

  /** Closes the clients of removed credentials, after the accounts have changed. */
  revalidatePrincipals(): void {
    for (const principal of [...this.#clients.keys()]) if (!principal.isValid) this.#close(principal);
  }

  /** Closes all clients. Their claims stay at the store, until their leases end. */
  close(): void {
    for (const principal of [...this.#clients.keys()]) this.#close(principal);
  }

  #close(principal: Principal): void {
    const client = this.#clients.get(principal);
    this.#clients.delete(principal);
    client?.context?.engine.stop();
    void client?.driver.close();
  }
}

/** What a client learns of an error of the store. */
export function toRequestError(error: unknown): RequestError {
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
