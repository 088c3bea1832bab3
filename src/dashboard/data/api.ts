/** Requests to the gateway. */

import type { RevokeBody, Session, SessionMethods, SessionRequest } from "../../gateway/dashboard/view-types.ts";
import { readItem, writeItem } from "./storage.ts";
import { ValueStore } from "./value-store.ts";

/**
 * Why a request failed. signedOut: there is no session; forbidden: the session may not do this, or the store cannot; refused: another answer of the
 * gateway; unreachable: no answer.
 */
export type FailureKind = "signedOut" | "forbidden" | "refused" | "unreachable";

/** The failure of a request, for people. */
export class RequestError extends Error {
  readonly kind: FailureKind;
  readonly status: number;
  constructor(kind: FailureKind, status: number, message: string) {
    super(message);
    this.name = "RequestError";
    this.kind = kind;
    this.status = status;
  }
}

const API = "/ui/api";
const SESSION = "/ui/session";
const SECRET_HEADER = "holdfast-ui";
const SECRET_ITEM = "holdfast-ui-secret";
const REQUEST_TIMEOUT_MS = 20_000;

export const UNREACHABLE = "the dashboard's gateway cannot be reached; trying again";

/** "unknown": not asked yet. */
export const sessionState: ValueStore<"unknown" | "signedIn" | "signedOut"> = new ValueStore("unknown");

/** The body of a response; null: 204, nothing has changed. @throws RequestError */
export async function getJson<T>(path: string, signal?: AbortSignal): Promise<T | null> {
  const response = await send(`${API}${path}`, { ...(signal && { signal }) });
  return response.status === 204 ? null : ((await readBody(response)) as T);
}

/** Asks for the head of a response alone. @throws RequestError if it is a failure */
export async function probe(url: string): Promise<void> {
  const controller = new AbortController();
  await send(url, { signal: controller.signal });
  controller.abort();
}

/** @throws RequestError */
export async function revoke(body: RevokeBody): Promise<void> {
  await send(`${API}/revoke`, { method: "POST", body: JSON.stringify(body), headers: jsonHeaders() });
}

/** How to sign in: true, also with the credential of an account. @throws RequestError */
export async function hasAccounts(): Promise<boolean> {
  const response = await send(`${SESSION}/methods`, {});
  return ((await readBody(response)) as SessionMethods).accounts;
}

/** Begins a session. @throws RequestError */
export async function signIn(request: SessionRequest): Promise<void> {
  const response = await send(SESSION, { method: "POST", body: JSON.stringify(request), headers: jsonHeaders() }, true);
  const { secret } = (await readBody(response)) as Session;
  writeItem(SECRET_ITEM, secret);
  sessionState.set("signedIn");
}

/** Ends the session. @throws RequestError */
export async function signOut(): Promise<void> {
  await send(SESSION, { method: "DELETE", headers: jsonHeaders() });
  writeItem(SECRET_ITEM, null);
  sessionState.set("signedOut");
}

function jsonHeaders(): Record<string, string> {
  return { "content-type": "application/json", [SECRET_HEADER]: readItem(SECRET_ITEM) ?? "" };
}

/** @param isSignIn a 401 then means that the credential is wrong, and ends no session. @throws RequestError */
async function send(path: string, init: RequestInit, isSignIn = false): Promise<Response> {
  const timeout = AbortSignal.timeout(REQUEST_TIMEOUT_MS);
  const signal = init.signal ? AbortSignal.any([init.signal, timeout]) : timeout;
  const response = await fetch(path, { ...init, signal, cache: "no-store", credentials: "same-origin" }).catch(
    (error: unknown) => {
      if (init.signal?.aborted === true) throw error;
      throw new RequestError("unreachable", 0, UNREACHABLE);
    },
  );
  if (response.ok) {
    if (path.startsWith(API) && sessionState.value === "unknown") sessionState.set("signedIn");
    return response;
  }
  const failure = await toError(response);
  if (failure.kind === "signedOut" && !isSignIn) sessionState.set("signedOut");
  throw failure;
}

async function toError(response: Response): Promise<RequestError> {
  const { status } = response;
  const problem = (await response.json().catch(() => null)) as { readonly detail?: unknown } | null;
  const detail = typeof problem?.detail === "string" ? problem.detail : `the gateway answered with ${status}`;
  const kind = status === 401 ? "signedOut" : status === 403 || status === 501 ? "forbidden" : "refused";
  return new RequestError(kind, status, detail);
}

async function readBody(response: Response): Promise<unknown> {
  return response.json().catch(() => {
    throw new RequestError("unreachable", 0, UNREACHABLE);
  });
}
