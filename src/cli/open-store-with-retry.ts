/**
 * Connects to the store as a part of --wait, so that a wait covers a server that is being restarted. Without --wait a
 * failure is reported at once: the address may be wrong, and no time corrects that.
 */

import { setTimeout as delay } from "node:timers/promises";
import type { LocksOptions } from "../client/options.ts";
import { formatDuration } from "../util/duration.ts";
import { CommandError, isTransient } from "./errors.ts";
import type { Store } from "./open-store.ts";
import { openStore, resolveUrl } from "./open-store.ts";
import { createReporter } from "./reporter.ts";

const MIN_PAUSE_MS = 100;
const MAX_PAUSE_MS = 1_000;
/** No attempt begins with less time left. */
const MIN_ATTEMPT_MS = 10;
/** After this time the user is told what the command waits for. */
const NOTICE_AFTER_MS = 1_000;

export interface RetryOptions {
  readonly url: string | undefined;
  /** The longest wait from now, in milliseconds; 0 or undefined: connect once. */
  readonly waitMs: number | undefined;
  readonly signal?: AbortSignal;
  readonly quiet?: boolean;
  readonly verbose?: boolean;
  readonly json?: boolean;
}

/**
 * Opens the store.
 * @throws CommandError unreachable: a transient error at the end of the wait, any other at once; refused; usage for an invalid url
 */
export async function openStoreWithRetry(options: RetryOptions, settings: LocksOptions): Promise<Store> {
  const { url, waitMs = 0, signal } = options;
  // without a url the driver starts the server itself, and a failure of that start is not transient
  if (waitMs === 0 || resolveUrl(url) === undefined) return openStore(url, settings);
  const startedAt = performance.now();
  const deadline = startedAt + waitMs;
  let isReported = false;
  for (let pauseMs = MIN_PAUSE_MS; ; pauseMs = Math.min(2 * pauseMs, MAX_PAUSE_MS)) {
    const result = await openBefore(url, settings, deadline);
    if ("locks" in result) return result;
    const now = performance.now();
    if (!isTransient(result) || signal?.aborted === true) throw result;
    if (now >= deadline) throw toTimeoutError(result, waitMs);
    if (!isReported && now >= startedAt + NOTICE_AFTER_MS) {
      isReported = true;
      createReporter(options).info(
        `${result.message}: trying again for up to ${formatDuration(Math.ceil((deadline - now) / 1_000) * 1_000)}`,
      );
    }
    await delay(Math.min(pauseMs, deadline - now), undefined, { ...(signal && { signal }) }).catch(() => undefined);
    // an attempt without enough time would end as "did not answer", and hide why the earlier ones failed
    if (performance.now() >= deadline - MIN_ATTEMPT_MS) throw toTimeoutError(result, waitMs);
  }
}

/** Opens the store, or gives the error. It settles at the deadline even if the store does not answer. */
async function openBefore(
  url: string | undefined,
  settings: LocksOptions,
  deadline: number,
): Promise<Store | CommandError> {
  const opening = openStore(url, settings).catch((error: unknown) => error as CommandError);
  const timeoutAbort = new AbortController();
  const remainingMs = Math.max(deadline - performance.now(), 1);
  const timeout = delay(remainingMs, null, { signal: timeoutAbort.signal }).catch(() => null);
  const result = await Promise.race([opening, timeout]);
  timeoutAbort.abort();
  if (result !== null) return result;
  void opening.then((store) => ("locks" in store ? store.locks.close() : undefined));
  return new CommandError("unreachable", "the server did not answer", { cause: { code: "ETIMEDOUT" } });
}

function toTimeoutError({ kind, message, code, details, cause }: CommandError, waitMs: number): CommandError {
  return new CommandError(kind, `waited ${formatDuration(waitMs)}: ${message}`, { code, details, cause });
}
