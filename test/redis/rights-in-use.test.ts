/**
 * A right that is taken away while locks are in use: whatever a script is refused half-way, whoever is told to hold is counted
 * as a holder, and when the right is back everything can be had again.
 */

import { Redis } from "ioredis";
import { expect, test } from "vitest";
import { redis } from "../../src/drivers/redis/driver.ts";
import type { Answer, Claim, Driver } from "../../src/spi/driver.ts";
import { redisView, redisViolations } from "../support/inspect-redis.ts";
import { RIGHTS } from "../support/redis-rights.ts";
import { claimOf } from "../support/redis-scene.ts";
import { withRedis } from "../support/redis-store.ts";
import { until } from "../support/wait-for.ts";

const TTL_MS = 1_500;
/** With fewer keys to be asked, a script does nothing. */
const COMMANDS = RIGHTS.map((right) => right.slice(1)).filter((name) => !/^eval|script|subscribe|select/.test(name));

interface Process {
  readonly driver: Driver;
  /** Claims that it was told to hold, by an answer or a push. */
  readonly told: Set<string>;
}

withRedis((server, admin) => {
  const opened = async (prefix: string, username: string): Promise<Process> => {
    const place = { port: server().port, host: "127.0.0.1", username, password: "pw" };
    const driver = redis(() => new Redis(place), { prefix, warn: () => undefined });
    const told = new Set<string>();
    await driver.open((id, answer) => {
      if (answer?.state === "held") told.add(String(id));
    });
    return { driver, told };
  };
  const tried = async <T>(call: Promise<T>): Promise<T | null> => call.catch(() => null);
  const claims = async ({ driver, told }: Process, claim: Claim): Promise<Answer | null> => {
    const answer = await tried(driver.claim(claim));
    if (answer?.state === "held") told.add(claim.id);
    return answer;
  };

  /** Everybody who was told to hold stands among the admitted, in Redis; and nobody beside whom he does not fit. */
  async function counted(prefix: string, processes: readonly Process[], left: readonly Claim[]): Promise<void> {
    const { places } = await redisView(admin(), prefix);
    const held = places.filter(({ state }) => state === "held").map(({ claim }) => claim.slice(-26));
    for (const id of processes.flatMap(({ told }) => [...told])) {
      if (!left.some((claim) => claim.id === id)) expect(held, "who was told to hold is counted").toContain(id);
    }
    const beyond = (await redisViolations(admin(), prefix)).filter((one) => one.includes("beyond its limit"));
    expect(beyond).toEqual([]);
  }

  /** Without the right to one command: hand-offs, releases and takes. */
  async function without(name: string): Promise<void> {
    const [prefix, user] = [`without-${name}`, `user-${name}`];
    const rules = [`~${prefix}:*`, `&${prefix}:*`, ...RIGHTS];
    await admin().call("ACL", "SETUSER", user, "reset", "on", ">pw", ...rules);
    const [one, other, third] = [await opened(prefix, user), await opened(prefix, user), await opened(prefix, user)];
    const all = [one, other, third];
    const terms = { ttlMs: TTL_MS };
    const hold = (key: string) => ({ key, permits: 1, limit: 1 });
    const [handed, given, both] = [claimOf("handed", terms), claimOf("given", terms), claimOf("both", terms)];
    for (const claim of [handed, given, both]) await claims(one, claim);
    const waiters = [claimOf("handed", terms), claimOf("handed", terms), claimOf([hold("both"), hold("then")], terms)];
    for (const [at, claim] of waiters.entries()) await claims(at === 1 ? third : other, claim);
    const late = ["handed", "given", "both", "then", "taken"].map((key) => claimOf(key, terms));

    await admin().call("ACL", "SETUSER", user, `-${name}`);
    for (const claim of [handed, given, both]) await tried(one.driver.release([claim]));
    const [left, taken] = [[handed, given, both], claimOf("taken", terms)];
    await claims(other, taken);
    for (const claim of late) await claims(third, claim);
    await counted(prefix, all, left);
    for (const process of all) {
      const own = process === third ? [waiters[1] as Claim, ...late] : process === other ? [...waiters, taken] : [];
      for (const claim of own) {
        const [answer] = (await tried(process.driver.renew([claim]))) ?? [];
        if (answer?.state === "held") process.told.add(claim.id);
        // which is how a client learns that it has lost it
        if (answer?.state === "none") process.told.delete(claim.id);
      }
    }
    await counted(prefix, all, left);

    await admin().call("ACL", "SETUSER", user, `+${name}`);
    await one.driver.release(left);
    await other.driver.release([...waiters, taken], new Set(waiters.map(({ id }) => id)));
    await third.driver.release([waiters[1] as Claim, ...late]);
    for (const key of ["handed", "given", "both", "then", "taken"]) {
      const claim = claimOf(key, { ...terms, wait: false });
      const isFree = async (): Promise<boolean> => (await one.driver.claim(claim)).state === "held";
      await until(isFree, { within: 3 * TTL_MS, what: `"${key}"` });
      await one.driver.release([claim]);
    }
    for (const { driver } of all) await driver.close();
    await admin().call("ACL", "DELUSER", user);
  }

  test("whichever it is, nobody hears of a grant that does not stand", { timeout: 30_000 }, async () => {
    expect(COMMANDS.length).toBeGreaterThanOrEqual(15);
    const failed: string[] = [];
    const all = COMMANDS.map((name) =>
      without(name).catch((error: unknown) => void failed.push(`-${name}: ${String(error)}`)),
    );
    await Promise.all(all);
    expect(failed).toEqual([]);
  });
});
