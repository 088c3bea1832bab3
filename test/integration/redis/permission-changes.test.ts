/**
 * A right is revoked while locks are in use: whichever command a script is refused half-way, every client that was granted a
 * lock is stored as a holder, and when the right is restored all locks can be acquired.
 */

import { Redis } from "ioredis";
import { expect, test } from "vitest";
import { redis } from "../../../src/drivers/redis/driver.ts";
import type { Answer, Claim, Driver } from "../../../src/spi/driver.ts";
import { until } from "../../../src/testing/until.ts";
import { makeClaim } from "../../support/claims.ts";
import { toDriverEvents } from "../../support/driver-events.ts";
import { toReleases } from "../../support/releases.ts";
import { withRedis } from "../../support/stores/redis-conformance.ts";
import { findRedisViolations, readStoreView } from "../../support/stores/redis-inspector.ts";
import { LEAST_PERMISSIONS } from "../../support/stores/redis-permissions.ts";

const TTL_MS = 1_500;
/** With fewer arguments a script does nothing. */
const COMMANDS = LEAST_PERMISSIONS.map((permission) => permission.slice(1)).filter(
  (name) => !/^eval|script|subscribe|select/.test(name),
);

interface RedisClientProcess {
  readonly driver: Driver;
  /** Claims granted to it, by an answer or a push. */
  readonly notifications: Set<string>;
}

withRedis((server, admin) => {
  const openProcess = async (prefix: string, username: string): Promise<RedisClientProcess> => {
    const address = { port: server().port, host: "127.0.0.1", username, password: "pw" };
    const driver = redis(() => new Redis(address), { prefix, warn: () => undefined });
    const notifications = new Set<string>();
    await driver.open(
      toDriverEvents((id, answer) => {
        if (answer?.state === "held") notifications.add(String(id));
      }),
    );
    return { driver, notifications };
  };
  const tryCall = async <T>(call: Promise<T>): Promise<T | null> => call.catch(() => null);
  const claims = async ({ driver, notifications }: RedisClientProcess, claim: Claim): Promise<Answer | null> => {
    const answer = await tryCall(driver.claim(claim));
    if (answer?.state === "held") notifications.add(claim.id);
    return answer;
  };

  /** Every client that was granted a lock has an admitted entry in Redis, and no admitted entry exceeds its limit. */
  async function counted(
    prefix: string,
    processes: readonly RedisClientProcess[],
    left: readonly Claim[],
  ): Promise<void> {
    const { entries } = await readStoreView(admin(), prefix);
    const held = entries.filter(({ state }) => state === "held").map(({ claim }) => claim.slice(-26));
    for (const id of processes.flatMap(({ notifications }) => [...notifications])) {
      if (!left.some((claim) => claim.id === id)) expect(held, "who was told to hold is counted").toContain(id);
    }
    const violations = (await findRedisViolations(admin(), prefix)).filter((violation) =>
      violation.includes("beyond its limit"),
    );
    expect(violations).toEqual([]);
  }

  /** Without the right to one command: hand-offs, releases and takes. */
  async function runWithout(name: string): Promise<void> {
    const [prefix, user] = [`without-${name}`, `user-${name}`];
    const rules = [`~${prefix}:*`, `&${prefix}:*`, ...LEAST_PERMISSIONS];
    await admin().call("ACL", "SETUSER", user, "reset", "on", ">pw", ...rules);
    const [lockClient, other, third] = [
      await openProcess(prefix, user),
      await openProcess(prefix, user),
      await openProcess(prefix, user),
    ];
    const processes = [lockClient, other, third];
    const options = { ttlMs: TTL_MS };
    const hold = (key: string) => ({ key, permits: 1, limit: 1 });
    const [handed, given, both] = [
      makeClaim("handed", options),
      makeClaim("given", options),
      makeClaim("both", options),
    ];
    for (const claim of [handed, given, both]) await claims(lockClient, claim);
    const waiters = [
      makeClaim("handed", options),
      makeClaim("handed", options),
      makeClaim([hold("both"), hold("then")], options),
    ];
    for (const [index, claim] of waiters.entries()) await claims(index === 1 ? third : other, claim);
    const lateClaims = ["handed", "given", "both", "then", "taken"].map((key) => makeClaim(key, options));

    await admin().call("ACL", "SETUSER", user, `-${name}`);
    for (const claim of [handed, given, both]) await tryCall(lockClient.driver.release(toReleases(claim)));
    const [left, taken] = [[handed, given, both], makeClaim("taken", options)];
    await claims(other, taken);
    for (const claim of lateClaims) await claims(third, claim);
    await counted(prefix, processes, left);
    for (const process of processes) {
      const ownClaims =
        process === third ? [waiters[1] as Claim, ...lateClaims] : process === other ? [...waiters, taken] : [];
      for (const claim of ownClaims) {
        const [answer] = (await tryCall(process.driver.renew([claim]))) ?? [];
        if (answer?.state === "held") process.notifications.add(claim.id);
        // which is how a client learns of the loss
        if (answer?.state === "none") process.notifications.delete(claim.id);
      }
    }
    await counted(prefix, processes, left);

    await admin().call("ACL", "SETUSER", user, `+${name}`);
    await lockClient.driver.release(toReleases(...left));
    await other.driver.release([...waiters, taken].map((claim) => ({ claim, hasUnansweredClaim: claim !== taken })));
    await third.driver.release(toReleases(waiters[1] as Claim, ...lateClaims));
    for (const key of ["handed", "given", "both", "then", "taken"]) {
      const claim = makeClaim(key, { ...options, wait: false });
      const isFree = async (): Promise<boolean> => (await lockClient.driver.claim(claim)).state === "held";
      await until(isFree, { within: 3 * TTL_MS, what: `"${key}"` });
      await lockClient.driver.release(toReleases(claim));
    }
    for (const { driver } of processes) await driver.close();
    await admin().call("ACL", "DELUSER", user);
  }

  test("whichever it is, no claim is reported as granted that is not", { timeout: 30_000 }, async () => {
    expect(COMMANDS.length).toBeGreaterThanOrEqual(15);
    const failed: string[] = [];
    const attempts = COMMANDS.map((name) =>
      runWithout(name).catch((error: unknown) => void failed.push(`-${name}: ${String(error)}`)),
    );
    await Promise.all(attempts);
    expect(failed).toEqual([]);
  });
});
