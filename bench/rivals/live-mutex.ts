/**
 * live-mutex, with a server of its own. The client says nothing of a lock that it has got.
 *
 * In its favour: no lease (`ttl: null`), because a lease cannot be extended; the server frees a lock when the connection of its holder
 * ends. One request for the whole wait, which the server answers as soon as the lock is free; by default it is repeated.
 */

import type { Hold, OpenSubject } from "../../src/torture/subject.ts";
import { loadThirdParty } from "../harness/third-party.ts";
import { requireKind } from "./adapter.ts";

export { startStore } from "./live-mutex-store.ts";

/** The least that it takes. */
const MIN_WAIT_MS = 20;
const NOT_GRANTED: readonly unknown[] = ["request_timeout", "wait_option_is_false"];

interface Client {
  ensure(): Promise<unknown>;
  acquire(key: string, options: object): Promise<{ readonly id: string }>;
  release(key: string, options: { readonly id: string }): Promise<unknown>;
  close(): void;
  readonly emitter: { on(event: "warning", listener: () => void): void };
}

interface LiveMutexModule {
  readonly default: { readonly Client: new (options: object) => Client };
}

export const openSubject: OpenSubject = async ({ url, prefix }) => {
  const { default: module } = await loadThirdParty<LiveMutexModule>("live-mutex");
  const { hostname, port } = new URL(url as string);
  const client = new module.Client({ host: hostname, port: Number(port), ttl: null, lockRetryMax: 1, noDelay: true });
  client.emitter.on("warning", () => undefined);
  await client.ensure();
  return {
    async acquire({ kind, keys, waitMs }): Promise<Hold | null> {
      requireKind(kind, "mutex");
      const key = `${prefix}${keys[0]}`;
      const wait = waitMs === 0 ? { wait: false } : { lockRequestTimeout: Math.max(waitMs, MIN_WAIT_MS) };
      try {
        const { id } = await client.acquire(key, wait);
        const release = (): Promise<null> => client.release(key, { id }).then(() => null);
        return { tokens: null, leftMs: () => null, onLost: () => undefined, release };
      } catch (error) {
        if (NOT_GRANTED.includes((error as { readonly code?: unknown }).code)) return null;
        throw error;
      }
    },
    close: async () => client.close(),
  };
};
