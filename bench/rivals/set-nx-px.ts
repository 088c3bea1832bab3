/**
 * The control: a lock as it is written by hand, SET with NX and PX and a release in Lua. It has no extension and no notice of a loss: who
 * works for longer than the lease does not learn of it.
 *
 * In its favour: commands fail after a quarter of the lease, and it asks again after 50 ms.
 */

import { randomUUID } from "node:crypto";
import type { OpenSubject } from "../../src/torture/subject.ts";
import { createIoredis, requireKind, retry } from "./adapter.ts";

const RETRY_MS = 50;
const RELEASE = 'if redis.call("get", KEYS[1]) == ARGV[1] then return redis.call("del", KEYS[1]) else return 0 end';

export const openSubject: OpenSubject = async (options) => {
  const client = createIoredis(options, options.ttlMs / 4);
  return {
    acquire({ kind, keys, waitMs }) {
      requireKind(kind, "mutex");
      const key = `${options.prefix}${keys[0]}`;
      const id = randomUUID();
      return retry(waitMs, RETRY_MS, async () => {
        if ((await client.set(key, id, "PX", options.ttlMs, "NX")) !== "OK") return null;
        return {
          tokens: null,
          leftMs: () => null,
          onLost: () => undefined,
          release: async () => (await client.eval(RELEASE, 1, key, id)) === 1,
        };
      });
    },
    close: async () => client.disconnect(),
  };
};
