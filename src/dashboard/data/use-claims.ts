/** The list of claims, read again and again. */

import { useCallback, useEffect, useRef, useState } from "preact/hooks";
import type { Reading } from "../../gateway/dashboard/view-types.ts";
import type { ReadState } from "../model/freshness.ts";
import { isLate } from "../model/freshness.ts";
import { LeaseScale } from "../model/lease-scale.ts";
import { getJson, RequestError } from "./api.ts";
import { startPolling } from "./polling.ts";
import { sessionSecret } from "./session.ts";

const INTERVAL_MS = 2_000;
const INVALID_MS = 60_000;
const MAX_RETRY_MS = 30_000;

/** What is known of the claims. */
export interface ClaimsState extends ReadState {
  /** null: no list has been read yet. */
  readonly reading: Reading | null;
  /** Until when the store grants nothing, in milliseconds since 1970; null: it grants. */
  readonly pausedUntil: number | null;
  /** What the account may not see, as the gateway says; null: it may. */
  readonly forbidden: string | null;
  /** Why no key can have this prefix or be this key; null: one can. */
  readonly invalid: string | null;
  readonly leases: LeaseScale;
}

/** The claims of a prefix or of one key. */
export type ClaimsQuery = { readonly prefix: string } | { readonly key: string };

/** The claims, and what reads them again at once. */
export function useClaims(query: ClaimsQuery): ClaimsState & { readonly refresh: () => void } {
  const path = `/claims?${new URLSearchParams({ ...query })}`;
  const isOfKey = "key" in query;
  const [state, setState] = useState<ClaimsState>(() => createInitialState(path));
  const [round, setRound] = useState(0);
  /** The newest state, and what its list was read from. */
  const latest = useRef({ readPath: path, state });
  const refresh = useCallback(() => setRound((count) => count + 1), []);

  useEffect(() => {
    const update = (next: ClaimsState, readPath: string): void => {
      latest.current = { readPath, state: next };
      if (readPath === path && !isOfKey && next.reading !== null) newest = { path, state: next };
      setState(next);
    };
    const { state: last, readPath: lastPath } = latest.current;
    // it was said of another prefix or key
    if (last.invalid !== null) update({ ...last, invalid: null }, lastPath);
    return startPolling(async (signal) => {
      const { state: before, readPath } = latest.current;
      try {
        const after = readPath === path ? findAfter(before) : "";
        const reading = await getJson<Reading>(path + after, signal);
        update(reading === null ? { ...before, requestFailure: null } : readInto(before, reading), path);
      } catch (error) {
        if (!(error instanceof RequestError)) return INTERVAL_MS;
        update(failInto(before, error), readPath);
        // the same request is as wrong the next time; another one begins at once
        if (error.kind === "invalid") return INVALID_MS;
        if (error.retryMs > INTERVAL_MS) return Math.min(error.retryMs, MAX_RETRY_MS);
      }
      return Math.max(INTERVAL_MS, latest.current.state.intervalMs);
    });
  }, [path, isOfKey, round]);
  return { ...state, refresh };
}

/** The newest list of keys, for a view that is opened again: its rows are there at once, with their age. */
let newest: { readonly path: string; readonly state: ClaimsState } | null = null;

// the next session may be that of another account
sessionSecret.subscribe(() => {
  newest = null;
});

/** @param path of the list */
function createInitialState(path: string): ClaimsState {
  if (newest?.path === path) return newest.state;
  return {
    reading: null,
    readAt: null,
    intervalMs: INTERVAL_MS,
    storeFailure: null,
    requestFailure: null,
    pausedUntil: null,
    forbidden: null,
    invalid: null,
    leases: new LeaseScale(),
  };
}

/** A list that is late is asked for in full: the answer says why. */
function findAfter({ reading, readAt, intervalMs }: ClaimsState): string {
  if (reading === null || isLate({ readAt, intervalMs }, performance.now())) return "";
  return `&after=${reading.sequence}`;
}

function readInto({ leases }: ClaimsState, reading: Reading): ClaimsState {
  leases.learn(reading.claims);
  const { ageMs, intervalMs, failure, paused, claims } = reading;
  return {
    // without claims, a list that failed does not say that there are none
    reading: failure !== null && claims.length === 0 ? null : reading,
    readAt: performance.now() - ageMs,
    intervalMs,
    storeFailure: failure,
    requestFailure: null,
    pausedUntil: paused === null ? null : Date.now() + paused.remainingMs - ageMs,
    forbidden: null,
    invalid: null,
    leases,
  };
}

function failInto(before: ClaimsState, { kind, message }: RequestError): ClaimsState {
  const answered = { ...before, requestFailure: null };
  switch (kind) {
    case "forbidden":
      return { ...answered, forbidden: message };
    case "invalid":
      return { ...answered, invalid: message };
    case "refused":
      return { ...answered, storeFailure: message };
    case "signedOut":
      return before;
    case "unreachable":
      return { ...before, requestFailure: message };
  }
}
