/**
 * The least that strict order on Redis can cost: one script claims, and grants or queues; one script releases, grants
 * the next in the queue and publishes it to the process that waits. It has no lease of a waiter, no lost reply, no
 * renewal, no listing and no cancellation: a waiter that dies stops the queue for ever.
 */

import { createHash, randomUUID } from "node:crypto";
import type { LockImplementation } from "../harness/closed-loop.ts";
import { createIoredis } from "./redis-holdfast.ts";

const TTL_MS = 30_000;
/** The token; 0 if the claim has joined the queue. An owner is "<channel of its process> <number>". */
const CLAIM_SCRIPT = `
if redis.call('SET', KEYS[1], ARGV[1], 'NX', 'PX', ARGV[2]) then return redis.call('INCR', KEYS[3]) end
redis.call('RPUSH', KEYS[2], ARGV[1])
return 0`;
const RELEASE_SCRIPT = `
if redis.call('GET', KEYS[1]) ~= ARGV[1] then return 0 end
local next = redis.call('LPOP', KEYS[2])
if not next then return redis.call('DEL', KEYS[1]) end
redis.call('SET', KEYS[1], next, 'PX', ARGV[2])
local token = redis.call('INCR', KEYS[3])
redis.call('PUBLISH', string.match(next, '^%S+'), next .. ' ' .. token)
return 1`;

interface HeldLock {
  readonly key: string;
  readonly owner: string;
  readonly token: number;
}

export async function openDirectHandOff(address: string): Promise<LockImplementation<HeldLock>> {
  const [client, subscriber] = [await createIoredis(address), await createIoredis(address)];
  for (const script of [CLAIM_SCRIPT, RELEASE_SCRIPT]) await client.script("LOAD", script);
  const [claim = "", release = ""] = [CLAIM_SCRIPT, RELEASE_SCRIPT].map((script) =>
    createHash("sha1").update(script).digest("hex"),
  );
  const channel = `bench-${randomUUID()}`;
  const waiting = new Map<string, (token: number) => void>();
  let claims = 0;
  // a grant may overtake the answer of the claim that waits for it: the waiter is noted before the claim is sent
  subscriber.on("message", (_channel: string, message: string) => {
    const end = message.lastIndexOf(" ");
    waiting.get(message.slice(0, end))?.(Number(message.slice(end + 1)));
  });
  await subscriber.subscribe(channel);
  return {
    async acquire(key) {
      const owner = `${channel} ${++claims}`;
      const granted = new Promise<number>((resolve) => waiting.set(owner, resolve));
      const answer = (await client.evalsha(claim, 3, key, `${key}:queue`, "token", owner, TTL_MS)) as number;
      const token = answer === 0 ? await granted : answer;
      waiting.delete(owner);
      return { key, owner, token };
    },
    release: ({ key, owner }) => client.evalsha(release, 3, key, `${key}:queue`, "token", owner, TTL_MS),
    tokenOf: ({ token }) => BigInt(token),
    close: async () => {
      client.disconnect();
      subscriber.disconnect();
    },
  };
}
