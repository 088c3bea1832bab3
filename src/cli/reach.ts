/**
 * Connecting as a part of the wait that was asked for: a server that is just being started again is waited for. Who gave no
 * --wait is told at once that nobody answers: it may be a wrong address, which no time mends.
 */

import { setTimeout as delay } from "node:timers/promises";
import type { LocksOptions } from "../client/options.ts";
import { shownDuration } from "../duration.ts";
import { CommandError, mayPass } from "./failure.ts";
import type { Store } from "./store.ts";
import { openStore, urlOf } from "./store.ts";
import { voiceOf } from "./voice.ts";

const FIRST_PAUSE_MS = 100;
const LONGEST_PAUSE_MS = 1_000;
/** No attempt begins with less time than this. */
const LAST_MS = 10;
/** After so long a person wonders. */
const SILENT_MS = 1_000;

export interface ReachOptions {
  readonly url: string | undefined;
  /** Longest wait in milliseconds, from now on; 0 or undefined: connect once. */
  readonly waitMs: number | undefined;
  readonly signal?: AbortSignal;
  readonly quiet?: boolean;
  readonly verbose?: boolean;
  readonly json?: boolean;
}

/**
 * The open store.
 * @throws CommandError unreachable, in the end of the wait if that may pass; refused, or usage for a url that means nothing
 */
export async function reach(options: ReachOptions, settings: LocksOptions): Promise<Store> {
  const { url, waitMs = 0, signal } = options;
  // a server of our own is started where there is none: what goes wrong with that does not pass by itself
  if (waitMs === 0 || urlOf(url) === undefined) return openStore(url, settings);
  const began = performance.now();
  const until = began + waitMs;
  let isTold = false;
  for (let pauseMs = FIRST_PAUSE_MS; ; pauseMs = Math.min(2 * pauseMs, LONGEST_PAUSE_MS)) {
    const opened = await attempt(url, settings, until);
    if ("locks" in opened) return opened;
    const now = performance.now();
    if (!mayPass(opened) || signal?.aborted === true) throw opened;
    if (now >= until) throw tooLate(opened, waitMs);
    if (!isTold && now >= began + SILENT_MS) {
      isTold = true;
      voiceOf(options).tell(
        `${opened.message}: trying again for up to ${shownDuration(Math.ceil((until - now) / 1_000) * 1_000)}`,
      );
    }
    await delay(Math.min(pauseMs, until - now), undefined, { ...(signal && { signal }) }).catch(() => undefined);
    // an attempt that is cut off at once would hide why the earlier ones failed
    if (performance.now() >= until - LAST_MS) throw tooLate(opened, waitMs);
  }
}

/** The store, or why it is not open; in time whatever the store does. */
async function attempt(url: string | undefined, settings: LocksOptions, until: number): Promise<Store | CommandError> {
  const opening = openStore(url, settings).catch((error: unknown) => error as CommandError);
  const late = new AbortController();
  const leftMs = Math.max(until - performance.now(), 1);
  const timeout = delay(leftMs, null, { signal: late.signal }).catch(() => null);
  const opened = await Promise.race([opening, timeout]);
  late.abort();
  if (opened !== null) return opened;
  void opening.then((store) => ("locks" in store ? store.locks.close() : undefined));
  return new CommandError("unreachable", "the server did not answer", { cause: { code: "ETIMEDOUT" } });
}

function tooLate({ why, message, code, details, cause }: CommandError, waitMs: number): CommandError {
  return new CommandError(why, `waited ${shownDuration(waitMs)}: ${message}`, { code, details, cause });
}
