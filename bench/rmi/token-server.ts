/** A token lock server's own test: 8 clients, each 1,000 times lock and unlock, all on one lock. */

import { mkdtempSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import type { BenchCase, Check, Row } from "../harness/bench-case.ts";
import { check } from "../harness/bench-case.ts";
import { compileLock, findJdk, JavaProcess } from "../harness/java-process.ts";
import { waitForIdle } from "../harness/machine.ts";
import type { ProcessGroup } from "../harness/process-groups.ts";
import { withProcessGroup } from "../harness/process-groups.ts";
import { computeRatio, computeSpread } from "../harness/stats.ts";

const CLIENT_COUNT = 8;
const TIMES = 1_000;
/**
 * The lock whose waiters sleep inside its monitor grants about one lock a millisecond: a tenth of the work shows it.
 */
const FEW_TURNS = 100;
const WARM_UP = 2;
const ROUNDS = 5;

const HOLDFAST = "holdfast";
const HOLDFAST_STRICT = "holdfast, strict order";
const MULTI_PROCESS = "holdfast, 8 processes";
const RMI_BARGING = "RMI, barging";
const RMI_BARGING_MULTI_PROCESS = "RMI, barging, 8 processes";
const RMI_POLLING = "RMI, as described";

/** Does the test once and tells how many pairs a second there were. */
type TimedImplementation = { readonly name: string; run(): Promise<number> };

export const tokenServer: BenchCase = {
  name: "token-server",
  title: "The token server's own test: 8 clients x 1,000 pairs on one lock",
  about:
    "8 callers of one process (threads there, requests here), and 8 processes with one each; servers in processes of their " +
    "own, on TCP. The RMI lock polls: as described its waiters sleep for a millisecond inside its monitor; `barging` is a " +
    "faster one, which sleeps outside, so that who has just released asks again and wins while the others sleep: it keeps no " +
    "line, no lease and hands no lock on. By default our callers in one process pass the lock on among themselves; " +
    "Strict order is that of arrival, each grant a round trip. 8 processes are in strict order always.",
  async run() {
    const rates = await createImplementations();
    const ratesOf = (name: string): readonly number[] => rates.get(name) ?? [];
    const rows: Row[] = [...rates].map(([name, pairs]) => ({
      name,
      figures: {
        "pairs/s": computeSpread(pairs),
        "ms for 8,000": computeSpread(pairs.map((rate) => 8_000_000 / rate)),
      },
    }));
    if (!rates.has(RMI_BARGING)) return { rows: [...rows, { name: "RMI: no JDK: not run", figures: {} }], checks: [] };
    const checks: Check[] = [
      check(
        "goal",
        "rate of the RMI lock as described",
        computeRatio(ratesOf(HOLDFAST), ratesOf(RMI_POLLING)),
        "at least",
        10,
      ),
      check(
        "goal",
        "rate of the barging RMI lock",
        computeRatio(ratesOf(HOLDFAST), ratesOf(RMI_BARGING)),
        "at least",
        10,
      ),
      check(
        "goal",
        "strict order: rate of the barging RMI lock",
        computeRatio(ratesOf(HOLDFAST_STRICT), ratesOf(RMI_BARGING)),
        "at least",
        0.5,
      ),
      check(
        "goal",
        "8 processes: rate of the RMI lock as described",
        computeRatio(ratesOf(MULTI_PROCESS), ratesOf(RMI_POLLING)),
        "at least",
        1,
      ),
    ];
    return { rows, checks };
  },
};

async function createImplementations(): Promise<ReadonlyMap<string, readonly number[]>> {
  const folder = mkdtempSync(join(tmpdir(), "holdfast-rmi-"));
  const javas: JavaProcess[] = [];
  try {
    const rmi = await createJavaImplementations(folder, javas);
    return await withProcessGroup(HOLDFAST, { processes: 1, tcp: true }, (group) =>
      withProcessGroup(HOLDFAST_STRICT, { processes: 1, tcp: true }, (strict) =>
        withProcessGroup(HOLDFAST, { processes: CLIENT_COUNT, tcp: true }, (processGroup) =>
          measureInTurns([
            createImplementation(HOLDFAST, group, CLIENT_COUNT),
            createImplementation(HOLDFAST_STRICT, strict, CLIENT_COUNT),
            createImplementation(MULTI_PROCESS, processGroup, 1),
            ...rmi,
          ]),
        ),
      ),
    );
  } finally {
    await Promise.all(javas.map((java) => java.end()));
    rmSync(folder, { recursive: true, force: true });
  }
}

async function measureInTurns(
  timedImplementations: readonly TimedImplementation[],
): Promise<ReadonlyMap<string, readonly number[]>> {
  const rates = new Map<string, number[]>(timedImplementations.map(({ name }) => [name, []]));
  for (let round = -WARM_UP; round < ROUNDS; round++) {
    for (const { name, run } of timedImplementations) {
      await waitForIdle();
      const rate = await run();
      if (round >= 0) rates.get(name)?.push(rate);
    }
  }
  return rates;
}

function createImplementation(name: string, { clients }: ProcessGroup, callers: number): TimedImplementation {
  return {
    name,
    async run() {
      const durations = clients.map((client) => client.call<number>("turns", { callers, times: TIMES }));
      return pairsPerSecond(clients.length * callers * TIMES, await Promise.all(durations));
    },
  };
}

async function createJavaImplementations(folder: string, started: JavaProcess[]): Promise<TimedImplementation[]> {
  const jdk = findJdk();
  if (jdk === null) return [];
  compileLock(jdk, folder);
  const start = async (...args: readonly string[]): Promise<JavaProcess> => {
    const java = await JavaProcess.start(jdk, folder, args);
    started.push(java);
    return java;
  };
  await start("server", join(folder, "barging"), "barging");
  await start("server", join(folder, "polling"), "polling");
  const barging = await start("client", join(folder, "barging"));
  const polling = await start("client", join(folder, "polling"));
  const clients = await Promise.all(
    Array.from({ length: CLIENT_COUNT }, () => start("client", join(folder, "barging"))),
  );
  return [
    {
      name: RMI_BARGING,
      run: async () => pairsPerSecond(CLIENT_COUNT * TIMES, [await barging.run(CLIENT_COUNT, TIMES)]),
    },
    {
      name: RMI_BARGING_MULTI_PROCESS,
      run: async () =>
        pairsPerSecond(CLIENT_COUNT * TIMES, await Promise.all(clients.map((java) => java.run(1, TIMES)))),
    },
    {
      name: RMI_POLLING,
      run: async () => pairsPerSecond(CLIENT_COUNT * FEW_TURNS, [await polling.run(CLIENT_COUNT, FEW_TURNS)]),
    },
  ];
}

/** The test is over when the last client is. */
function pairsPerSecond(pairs: number, durations: readonly number[]): number {
  return pairs / (Math.max(...durations) / 1_000);
}
