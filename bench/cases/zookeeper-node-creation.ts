/** The client below our driver against the packages that there are for Node. */

import type { BenchCase, Row } from "../harness/bench-case.ts";
import { check } from "../harness/bench-case.ts";
import { ChildProcessRpc } from "../harness/child-rpc.ts";
import { runRounds } from "../harness/run-rounds.ts";
import { computeRatio, computeSpread } from "../harness/stats.ts";
import { buildThirdParty } from "../harness/third-party.ts";
import { withBenchZooKeeper } from "../harness/zookeeper.ts";
import { HOLDFAST_CLIENT, NATIVE_CLIENT, PLAIN_CLIENT } from "../implementations/zookeeper-clients.ts";

const NODE_COUNT = 2_000;
const program = new URL("../harness/zookeeper-node-creation.child.js", import.meta.url);

interface CreationResult {
  readonly ms: number;
  readonly cpu: number;
}

export const zooKeeperNodeCreation: BenchCase = {
  name: "zookeeper-creates",
  title: "ZooKeeper, 2,000 ephemeral sequential nodes asked for at once",
  about:
    "One connection each, no lock: the client alone. `zookeeper` binds the C client and is compiled here (its threads' CPU " +
    "counts); `node-zookeeper-client` is plain JavaScript.",
  async run() {
    const unavailableReason = buildThirdParty("zookeeper");
    const names = [HOLDFAST_CLIENT, PLAIN_CLIENT, ...(unavailableReason === null ? [NATIVE_CLIENT] : [])];
    const results = await measureAll(names);
    const ratesOf = (name: string): readonly number[] =>
      (results.get(name) ?? []).map(({ ms }) => (NODE_COUNT / ms) * 1_000);
    const rows: Row[] = names.map((name) => ({
      name,
      figures: {
        "creates/s": computeSpread(ratesOf(name)),
        "CPU us/create": computeSpread((results.get(name) ?? []).map(({ cpu }) => cpu / NODE_COUNT)),
      },
    }));
    const goal = (thirdParty: string) =>
      check(
        "goal",
        `rate of ${thirdParty}`,
        computeRatio(ratesOf(HOLDFAST_CLIENT), ratesOf(thirdParty)),
        "at least",
        1.2,
      );
    if (unavailableReason === null) return { rows, checks: [goal(NATIVE_CLIENT)] };
    return {
      rows: [...rows, { name: `${NATIVE_CLIENT}: not built: ${unavailableReason}`, figures: {} }],
      checks: [goal(PLAIN_CLIENT)],
    };
  },
};

async function measureAll(names: readonly string[]): Promise<ReadonlyMap<string, readonly CreationResult[]>> {
  const results = new Map<string, CreationResult[]>(names.map((name) => [name, []]));
  await withBenchZooKeeper(async ({ address }) => {
    const children = names.map((name) => ({ name, child: new ChildProcessRpc(program, [name, address]) }));
    try {
      await runRounds(children, { warmUp: 3 }, async ({ name, child }, isCounted) => {
        const creationResult = await child.call<CreationResult>("creates", NODE_COUNT);
        if (isCounted) results.get(name)?.push(creationResult);
      });
    } finally {
      await Promise.all(children.map(({ child }) => child.end()));
    }
  });
  return results;
}
