/** Load on a store of three servers, and what must hold when some of them are killed and started again. */

import { setImmediate as turn } from "node:timers/promises";
import { expect } from "vitest";
import type { Lock, Locks } from "../../../src/index.ts";
import { until } from "../../../src/testing/until.ts";

const TIMEOUT_MS = 60_000;
/** The errors while the servers cannot be reached; any other is a fault. */
const EXPECTED_CODES: readonly string[] = ["LOCK_LOST", "LOCK_TIMEOUT", "LOCK_STORE_FAILED"];

export interface MajorityLoad {
  /** The codes of the errors so far. */
  readonly failures: readonly string[];
  /** Waits for this number of further grants. */
  waitForGrants(count: number, description: string): Promise<unknown>;
  /** Ends the work; returns the largest number of simultaneous holders, and whether tokens rose. */
  stop(): Promise<{ readonly maxInside: number; readonly tokensRose: boolean }>;
}

/** Each client acquires the key, again and again, until it is stopped. Failures are tried again. */
export function startLoad(key: string, clients: readonly Locks[]): MajorityLoad {
  let insideCount = 0;
  let maxInside = 0;
  let grants = 0;
  let last = 0n;
  let tokensRose = true;
  let isStopped = false;
  const failures: string[] = [];
  const runCaller = async (locks: Locks): Promise<void> => {
    const body = async ({ token }: { readonly token: bigint }): Promise<void> => {
      maxInside = Math.max(maxInside, ++insideCount);
      tokensRose &&= token > last;
      last = token;
      await turn();
      insideCount--;
      grants++;
    };
    while (!isStopped) {
      await locks.using(key, { wait: TIMEOUT_MS }, body).catch((error: unknown) => {
        const { code } = error as { readonly code: string };
        failures.push(code);
        if (!EXPECTED_CODES.includes(code)) throw error;
      });
    }
  };
  const working = Promise.all(clients.map(runCaller));
  return {
    failures,
    waitForGrants(count, description) {
      const from = grants;
      return until(() => grants >= from + count, { within: TIMEOUT_MS, what: description });
    },
    async stop() {
      isStopped = true;
      await working;
      return { maxInside, tokensRose };
    },
  };
}

interface StoppableServer {
  start(): Promise<unknown>;
  stop(signal: "SIGKILL"): Promise<unknown>;
}

interface KilledServers {
  readonly load: MajorityLoad;
  readonly held: Lock;
  readonly rounds: number;
  /** Those that a round kills: one, or all. */
  victims(): Promise<readonly StoppableServer[]>;
  /** Waits until they have a leader again. */
  leader(): Promise<unknown>;
}

/** Kills servers under load and starts them again: grants go on, and the held lock stays held. */
export async function expectGrantsGoOn({ load, held, rounds, victims, leader }: KilledServers): Promise<void> {
  for (let round = 0; round < rounds; round++) {
    await load.waitForGrants(20, "the load");
    const servers = await victims();
    await Promise.all(servers.map((server) => server.stop("SIGKILL")));
    if (servers.length === 1) await load.waitForGrants(20, "grants by the other two");
    await Promise.all(servers.map((server) => server.start()));
    await leader();
    await load.waitForGrants(20, "grants by all three");
  }
  expect(await load.stop()).toEqual({ maxInside: 1, tokensRose: true });
  held.throwIfLost();
  expect(await held.release()).toBe(true);
}
