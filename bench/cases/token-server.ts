/** The commissioned token lock server's own test: 8 clients, each 1,000 times lock and unlock, all on one lock. */

import { mkdtempSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import type { BenchCase, Check, Row } from "../harness/case.ts";
import { check } from "../harness/case.ts";
import type { Crew } from "../harness/crews.ts";
import { withCrew } from "../harness/crews.ts";
import { compileLock, JavaProcess, jdk } from "../harness/java.ts";
import { quiet } from "../harness/machine.ts";
import { ratioOf, spreadOf } from "../harness/stats.ts";

const CLIENTS = 8;
const TIMES = 1_000;
/** The lock whose waiters sleep inside its monitor grants about one lock a millisecond: a tenth of the work shows it. */
const FEW = 100;
const WARM_UP = 2;
const ROUNDS = 5;

const OURS = "holdfast";
const STRICT = "holdfast, handoffs 1";
const APART = "holdfast, 8 processes";
const BARGING = "RMI, barging";
const BARGING_APART = "RMI, barging, 8 processes";
const POLLING = "RMI, as described";

/** Does the test once and tells how many pairs a second there were. */
type Entrant = { readonly name: string; run(): Promise<number> };

export const tokenServer: BenchCase = {
  name: "token-server",
  title: "The token server's own test: 8 clients x 1,000 pairs on one lock",
  about:
    "8 callers of one process (threads there, requests here), and 8 processes with one each; servers in processes of their " +
    "own, on TCP. The RMI lock polls: as described its waiters sleep for a millisecond inside its monitor; `barging` is a " +
    "faster one, which sleeps outside, so that who has just released asks again and wins while the others sleep: it keeps no " +
    "line, no lease and hands no lock on. By default our callers in one process pass the lock on among themselves; " +
    "`handoffs 1` is strict order of arrival, each grant a round trip. 8 processes are in strict order always.",
  async run() {
    const rates = await all();
    const of = (name: string): readonly number[] => rates.get(name) ?? [];
    const rows: Row[] = [...rates].map(([contestant, pairs]) => ({
      contestant,
      figures: { "pairs/s": spreadOf(pairs), "ms for 8,000": spreadOf(pairs.map((rate) => 8_000_000 / rate)) },
    }));
    if (!rates.has(BARGING))
      return { rows: [...rows, { contestant: "RMI: no JDK: not run", figures: {} }], checks: [] };
    const checks: Check[] = [
      check("goal", "rate of the RMI lock as described", ratioOf(of(OURS), of(POLLING)), "at least", 10),
      check("goal", "rate of the barging RMI lock", ratioOf(of(OURS), of(BARGING)), "at least", 10),
      check("goal", "strict order: rate of the barging RMI lock", ratioOf(of(STRICT), of(BARGING)), "at least", 0.5),
      check("goal", "8 processes: rate of the RMI lock as described", ratioOf(of(APART), of(POLLING)), "at least", 1),
    ];
    return { rows, checks };
  },
};

async function all(): Promise<ReadonlyMap<string, readonly number[]>> {
  const folder = mkdtempSync(join(tmpdir(), "holdfast-rmi-"));
  const javas: JavaProcess[] = [];
  try {
    const rmi = await javaEntrants(folder, javas);
    return await withCrew(OURS, { processes: 1, tcp: true }, (one) =>
      withCrew(STRICT, { processes: 1, tcp: true }, (strict) =>
        withCrew(OURS, { processes: CLIENTS, tcp: true }, (apart) =>
          inTurns([entrant(OURS, one, CLIENTS), entrant(STRICT, strict, CLIENTS), entrant(APART, apart, 1), ...rmi]),
        ),
      ),
    );
  } finally {
    await Promise.all(javas.map((java) => java.end()));
    rmSync(folder, { recursive: true, force: true });
  }
}

async function inTurns(entrants: readonly Entrant[]): Promise<ReadonlyMap<string, readonly number[]>> {
  const rates = new Map<string, number[]>(entrants.map(({ name }) => [name, []]));
  for (let round = -WARM_UP; round < ROUNDS; round++) {
    for (const { name, run } of entrants) {
      await quiet();
      const rate = await run();
      if (round >= 0) rates.get(name)?.push(rate);
    }
  }
  return rates;
}

function entrant(name: string, { clients }: Crew, callers: number): Entrant {
  return {
    name,
    async run() {
      const took = clients.map((client) => client.call<number>("turns", { callers, times: TIMES }));
      return rateOf(clients.length * callers * TIMES, await Promise.all(took));
    },
  };
}

async function javaEntrants(folder: string, started: JavaProcess[]): Promise<Entrant[]> {
  const found = jdk();
  if (found === null) return [];
  compileLock(found, folder);
  const start = async (...args: readonly string[]): Promise<JavaProcess> => {
    const java = await JavaProcess.start(found, folder, args);
    started.push(java);
    return java;
  };
  await start("server", join(folder, "barging"), "barging");
  await start("server", join(folder, "polling"), "polling");
  const barging = await start("client", join(folder, "barging"));
  const polling = await start("client", join(folder, "polling"));
  const apart = await Promise.all(Array.from({ length: CLIENTS }, () => start("client", join(folder, "barging"))));
  return [
    { name: BARGING, run: async () => rateOf(CLIENTS * TIMES, [await barging.run(CLIENTS, TIMES)]) },
    {
      name: BARGING_APART,
      run: async () => rateOf(CLIENTS * TIMES, await Promise.all(apart.map((java) => java.run(1, TIMES)))),
    },
    { name: POLLING, run: async () => rateOf(CLIENTS * FEW, [await polling.run(CLIENTS, FEW)]) },
  ];
}

/** The test is over when the last client is. */
function rateOf(pairs: number, took: readonly number[]): number {
  return pairs / (Math.max(...took) / 1_000);
}
