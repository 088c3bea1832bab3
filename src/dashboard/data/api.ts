/** Requests to the gateway. */

import type { RevokeBody, Session, SessionMethods, SessionRequest } from "../../gateway/dashboard/view-types.ts";
import { beginSession, endSession, readSecret, refuseSecret, sessionState } from "./session.ts";

/**
 * Why a request failed. signedOut: there is no session; forbidden: the session may not do this, or the store cannot; invalid: the
 * request itself, such as a prefix that no key can have; refused: another answer of the gateway; unreachable: no answer.
 */
export type FailureKind = "signedOut" | "forbidden" | "invalid" | "refused" | "unreachable";

/** The failure of a request, for people. */
export class RequestError extends Error {
  readonly kind: FailureKind;
  readonly status: number;
  /** The time after which another attempt makes sense, as the gateway says. */
  readonly retryMs: number;
  constructor(kind: FailureKind, status: number, message: string, retryMs = 0) {
    super(message);
    this.name = "RequestError";
    this.kind = kind;
    this.status = status;
    this.retryMs = retryMs;
  }
}

const API = "/ui/api";
const SESSION = "/ui/session";
const SECRET_HEADER = "holdfast-ui";
const REQUEST_TIMEOUT_MS = 20_000;

const UNREACHABLE = "the dashboard's gateway cannot be reached; trying again";

export function createUnreachable(): RequestError {
  return new RequestError("unreachable", 0, UNREACHABLE);
}

/** The body of a response; null: 204, nothing has changed. @throws RequestError */
export async function getJson<T>(path: string, signal?: AbortSignal): Promise<T | null> {
  const response = await sendSigned(`${API}${path}`, { ...(signal && { signal }) });
  return response.status === 204 ? null : ((await readBody(response)) as T);
}

/** A response whose body goes on until the signal ends it. @throws RequestError */
export async function openStream(
  path: string,
  headers: Readonly<Record<string, string>>,
  signal: AbortSignal,
): Promise<Response> {
  return sendSigned(`${API}${path}`, { headers, signal }, true);
}

/** @throws RequestError */
export async function revoke(body: RevokeBody): Promise<void> {
  await sendSigned(`${API}/revoke`, { method: "POST", body: JSON.stringify(body), headers: JSON_HEADERS });
}

/** How to sign in: true, also with the credential of an account. @throws RequestError */
export async function hasAccounts(): Promise<boolean> {
  const response = await send(`${SESSION}/methods`, {});
  return ((await readBody(response)) as SessionMethods).accounts;
}

/** Begins a session. @throws RequestError */
export async function signIn(request: SessionRequest): Promise<void> {
  const response = await send(SESSION, { method: "POST", body: JSON.stringify(request), headers: JSON_HEADERS });
  beginSession(((await readBody(response)) as Session).secret);
}

/** Ends the session. @throws RequestError */
export async function signOut(): Promise<void> {
  await sendSigned(SESSION, { method: "DELETE" });
  endSession();
}

const JSON_HEADERS = { "content-type": "application/json" };

/** With the secret of the session: the cookie alone is no proof, as other servers of the same host receive it, too. @throws RequestError */
async function sendSigned(path: string, init: RequestInit, isStream = false): Promise<Response> {
  const secret = readSecret();
  try {
    if (secret === null) throw new RequestError("signedOut", 0, "there is no session: sign in");
    const headers = { ...init.headers, [SECRET_HEADER]: secret };
    const response = await send(path, { ...init, headers }, isStream);
    if (sessionState.value === "unknown" && secret === readSecret()) sessionState.set("signedIn");
    return response;
  } catch (error) {
    if (error instanceof RequestError && error.kind === "signedOut") refuseSecret(secret);
    throw error;
  }
}

/** @param isStream only the head of the response must be there in time. @throws RequestError */
async function send(path: string, init: RequestInit, isStream = false): Promise<Response> {
  const limit = new AbortController();
  const timer = setTimeout(() => limit.abort(), REQUEST_TIMEOUT_MS);
  const signal = init.signal ? AbortSignal.any([init.signal, limit.signal]) : limit.signal;
  try {
    const response = await fetch(path, { ...init, signal, cache: "no-store", credentials: "same-origin" });
    if (isStream) clearTimeout(timer);
    if (response.ok) return response;
    throw await toError(response);
  } catch (error) {
    clearTimeout(timer);
    if (error instanceof RequestError || init.signal?.aborted === true) throw error;
    throw createUnreachable();
  }
}

/** What a response to a failed request says, as far as it is as expected. */
interface ProblemBody {
  readonly reason?: unknown;
  readonly detail?: unknown;
  readonly retryMs?: unknown;
}

async function toError(response: Response): Promise<RequestError> {
  const { status } = response;
  const problem = (await response.json().catch(() => null)) as ProblemBody | null;
  const detail = typeof problem?.detail === "string" ? problem.detail : `the gateway answered with ${status}`;
  const retryMs = typeof problem?.retryMs === "number" ? problem.retryMs : 0;
  return new RequestError(findKind(status, problem?.reason), status, detail, retryMs);
}

function findKind(status: number, reason: unknown): FailureKind {
  switch (status) {
    case 400:
      return "invalid";
    case 401:
      return "signedOut";
    case 403:
      // the secret is that of another session than the cookie: a new session has both
      return reason === "secret" ? "signedOut" : "forbidden";
    case 501:
      return "forbidden";
    default:
      return "refused";
  }
}

async function readBody(response: Response): Promise<unknown> {
  return response.json().catch(() => {
    throw createUnreachable();
  });
}
