/** The client below our driver against the packages that there are for Node. */

import { NATIVE, OUR_CLIENT, PLAIN } from "../contestants/zookeeper-clients.ts";
import { Child } from "../harness/calls.ts";
import type { BenchCase, Row } from "../harness/case.ts";
import { check } from "../harness/case.ts";
import { buildRival } from "../harness/rivals.ts";
import { ratioOf, spreadOf } from "../harness/stats.ts";
import { inTurns, withZooKeeper } from "../harness/zookeeper-rounds.ts";

const COUNT = 2_000;
const program = new URL("../harness/zookeeper-creates.child.js", import.meta.url);

interface Made {
  readonly ms: number;
  readonly cpu: number;
}

export const zooKeeperCreates: BenchCase = {
  name: "zookeeper-creates",
  title: "ZooKeeper, 2,000 ephemeral sequential nodes asked for at once",
  about:
    "One connection each, no lock: the client alone. `zookeeper` binds the C client and is compiled here (its threads' CPU " +
    "counts); `node-zookeeper-client` is plain JavaScript.",
  async run() {
    const whyNot = buildRival("zookeeper");
    const names = [OUR_CLIENT, PLAIN, ...(whyNot === null ? [NATIVE] : [])];
    const made = await all(names);
    const ratesOf = (name: string): readonly number[] => (made.get(name) ?? []).map(({ ms }) => (COUNT / ms) * 1_000);
    const rows: Row[] = names.map((name) => ({
      contestant: name,
      figures: {
        "creates/s": spreadOf(ratesOf(name)),
        "CPU us/create": spreadOf((made.get(name) ?? []).map(({ cpu }) => cpu / COUNT)),
      },
    }));
    const goal = (rival: string) =>
      check("goal", `rate of ${rival}`, ratioOf(ratesOf(OUR_CLIENT), ratesOf(rival)), "at least", 1.2);
    if (whyNot === null) return { rows, checks: [goal(NATIVE)] };
    return { rows: [...rows, { contestant: `${NATIVE}: not built: ${whyNot}`, figures: {} }], checks: [goal(PLAIN)] };
  },
};

async function all(names: readonly string[]): Promise<ReadonlyMap<string, readonly Made[]>> {
  const made = new Map<string, Made[]>(names.map((name) => [name, []]));
  await withZooKeeper(async (address) => {
    const children = names.map((name) => ({ name, child: new Child(program, [name, address]) }));
    try {
      await inTurns(children, async ({ name, child }, isCounted) => {
        const found = await child.call<Made>("creates", COUNT);
        if (isCounted) made.get(name)?.push(found);
      });
    } finally {
      await Promise.all(children.map(({ child }) => child.end()));
    }
  });
  return made;
}
