/** Three gateways on one Redis are killed in turn, while clients acquire, renew and release over any of them. */

import { setTimeout as delay } from "node:timers/promises";
import { expect, onTestFinished } from "vitest";
import { freePorts } from "../../src/torture/processes/free-port.ts";
import { post, request } from "../support/http-fixture.ts";
import type { ProcessHarness, RunningProcess } from "../support/processes/process-harness.ts";
import { IS_LONG_RUN, test } from "../support/processes/process-harness.ts";
import { waitForOutput } from "../support/processes/process-output.ts";
import { seededRandom } from "../support/seeded-random.ts";
import { startRedis } from "../support/stores/redis.ts";

const SECTIONS = IS_LONG_RUN ? 10_000 : 400;
const CLIENTS = 8;
const KEYS = ["a", "b", "c"] as const;
/** A lock whose grant was not answered, because its gateway died, is free again after this. */
const TTL = "1s";
const KILL_INTERVAL_MS = 700;

const seed = Number(process.env.HOLDFAST_SEED ?? Date.now() % 1_000_000);

interface GatewayProcess {
  readonly url: string;
  process: RunningProcess;
}

async function startGateway(harness: ProcessHarness, url: string, port: number): Promise<RunningProcess> {
  const running = harness.start(["gateway", "--url", url, "--http", `127.0.0.1:${port}`, "--quiet"]);
  await waitForOutput(running, () => (running.out().includes("HTTP on") ? true : null), {
    within: 20_000,
    what: "the gateway",
  });
  return running;
}

/** A value that only the holder of a lock changes, in a section that others could interrupt. */
class Register {
  value = 0;
  sections = 0;
  readonly faults: string[] = [];
  #lastToken = 0n;
  #isInside = false;

  async change(token: bigint): Promise<void> {
    if (this.#isInside) this.faults.push(`two sections at a time, token ${token}`);
    if (token <= this.#lastToken) this.faults.push(`token ${token} after ${this.#lastToken}`);
    this.#lastToken = token;
    this.#isInside = true;
    const { value } = this;
    await delay(1);
    this.value = value + 1;
    this.sections++;
    this.#isInside = false;
  }
}

test(`three gateways killed in turn under load: ${SECTIONS} fenced sections over HTTP, none lost (HOLDFAST_SEED=${seed})`, {
  timeout: IS_LONG_RUN ? 1_200_000 : 120_000,
}, async ({ harness }) => {
  const random = seededRandom(seed);
  const redis = await startRedis();
  onTestFinished(() => redis.stop());
  const ports = await freePorts(3);
  const gateways: GatewayProcess[] = await Promise.all(
    ports.map(async (port) => ({
      url: `http://127.0.0.1:${port}`,
      process: await startGateway(harness, redis.url, port),
    })),
  );
  const registers = new Map(KEYS.map((key) => [key, new Register()]));
  const countSections = (): number => [...registers.values()].reduce((sum, { sections }) => sum + sections, 0);
  /** The answer of any gateway that is alive; null: the one that was asked has died. */
  const ask = (path: string, body: object) => post(random.pick(gateways).url, path, body).catch(() => null);
  const kills = { count: 0 };
  const isOver = (): boolean => countSections() >= SECTIONS && kills.count >= gateways.length;
  const renewals = { ok: 0, released: 0 };

  const acquire = async (key: string): Promise<{ readonly reference: string; readonly token: string } | null> => {
    let { url } = random.pick(gateways);
    let answer = await post(url, "/v1/claims", { key, ttl: TTL, wait: "2s" }).catch(() => null);
    // the place belongs to that gateway; if it dies, or another one is asked, the client begins again
    while (answer?.status === 202) {
      if (random.chance(0.2)) ({ url } = random.pick(gateways));
      answer = await post(url, "/v1/claims/wait", { reference: answer.json.reference, wait: "2s" }).catch(() => null);
    }
    return answer?.status === 201 ? answer.json : null;
  };
  const client = async (): Promise<void> => {
    while (!isOver()) {
      const key = random.pick(KEYS);
      const held = await acquire(key);
      if (held === null) continue;
      await (registers.get(key) as Register).change(BigInt(held.token));
      const { reference } = held;
      if (random.chance(0.3) && (await ask("/v1/claims/renew", { reference }))?.status === 200) renewals.ok++;
      for (let attempt = 0; attempt < 5; attempt++) {
        const released = await ask("/v1/claims/release", { reference });
        if (released === null) continue;
        if (released.status === 200) renewals.released++;
        break;
      }
    }
  };
  const kill = async (): Promise<void> => {
    while (!isOver()) {
      await delay(random.int(2 * KILL_INTERVAL_MS));
      const index = kills.count++ % gateways.length;
      const gateway = gateways[index] as GatewayProcess;
      gateway.process.kill();
      await gateway.process.ended;
      gateway.process = await startGateway(harness, redis.url, ports[index] as number);
    }
  };
  await Promise.all([kill(), ...Array.from({ length: CLIENTS }, client)]);
  for (const [key, register] of registers) {
    expect(register.faults, key).toEqual([]);
    expect(register.value, key).toBe(register.sections);
  }
  expect(renewals.ok).toBeGreaterThan(SECTIONS / 20);
  expect(renewals.released).toBeGreaterThan(SECTIONS / 2);
  const { json } = await request(gateways[0]?.url as string, "/v1/locks");
  expect(json.locks.filter(({ state }: { state: string }) => state === "held").length).toBeLessThanOrEqual(KEYS.length);
  console.log(`figure: three gateways, ${kills.count} killed: ${countSections()} sections of ${CLIENTS} clients`);
});
