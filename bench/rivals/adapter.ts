/** What the adapters of rivals have in common (src/torture/subject.ts). It hides no error, and adds no safety: a rival is tortured as it is. */

import { setTimeout as delay } from "node:timers/promises";
import { Redis } from "ioredis";
import type { OperationKind } from "../../src/torture/history.ts";
import type { Hold, SubjectOptions } from "../../src/torture/subject.ts";

/** @throws UnsupportedError unless it is one of these */
export function requireKind(kind: OperationKind, ...kinds: readonly OperationKind[]): void {
  if (kinds.includes(kind)) return;
  throw Object.assign(new Error(`its locks know no operation of the kind ${kind}`), { name: "UnsupportedError" });
}

/** Asks at once, and again after a delay, until the wait has passed; null: never granted. */
export async function retry<T>(waitMs: number, delayMs: number, ask: () => Promise<T | null>): Promise<T | null> {
  const endsAt = performance.now() + waitMs;
  for (;;) {
    const granted = await ask();
    if (granted !== null || performance.now() >= endsAt) return granted;
    await delay(delayMs * (0.5 + Math.random()));
  }
}

/** The connection that a user of ioredis has, which waits for no answer longer than `commandTimeout`. */
export function createIoredis({ url }: SubjectOptions, commandTimeout?: number): Redis {
  const client = new Redis(url as string, commandTimeout === undefined ? {} : { commandTimeout });
  // ioredis connects again by itself, and reports each attempt that failed
  client.on("error", () => undefined);
  return client;
}

/** Tells a loss, once. */
export class LossNotice {
  #reason: string | null = null;
  #listener: ((reason: string) => void) | null = null;

  get isTold(): boolean {
    return this.#reason !== null;
  }

  tell(reason: string): void {
    if (this.#reason !== null) return;
    this.#reason = reason;
    this.#listener?.(reason);
  }

  /** As Hold has it. */
  readonly onLost: Hold["onLost"] = (listener) => {
    this.#listener = listener;
    if (this.#reason !== null) listener(this.#reason);
  };
}

/** Extends a lock regularly until stop(); an extension that fails is the library's notice of the loss. */
export function extendRegularly(everyMs: number, notice: LossNotice, extend: () => Promise<unknown>): () => void {
  const timer = setInterval(() => {
    extend().catch((error: Error) => {
      clearInterval(timer);
      notice.tell(error.message);
    });
  }, everyMs);
  return () => clearInterval(timer);
}

/** A lock whose library runs a routine with a signal, as a hold; null: `isBusy` says of its error that it was not granted. */
export function enterScope(
  run: (routine: (signal: AbortSignal) => Promise<void>) => Promise<unknown>,
  isBusy: (error: Error) => boolean,
): Promise<Hold | null> {
  return new Promise((resolve, reject) => {
    let leave = (): void => undefined;
    const left = new Promise<void>((resolveLeft) => {
      leave = resolveLeft;
    });
    const ended = run((signal) => {
      const notice = new LossNotice();
      signal.addEventListener("abort", () => notice.tell("its signal is aborted"), { once: true });
      resolve({
        tokens: null,
        leftMs: () => (signal.aborted ? 0 : null),
        onLost: notice.onLost,
        async release() {
          leave();
          await ended;
          return null;
        },
      });
      return left;
    });
    ended.catch((error: Error) => (isBusy(error) ? resolve(null) : reject(error)));
  });
}
