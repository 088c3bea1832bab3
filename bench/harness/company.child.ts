// A process of the bench with several implementations: performs each workload with the implementation that the call
// names.

import { findImplementation } from "../implementations/implementations.ts";
import { serveCalls } from "./child-rpc.ts";
import type { Measured } from "./client.child.ts";
import type { LockImplementation, Workload } from "./closed-loop.ts";
import { runWorkload } from "./closed-loop.ts";
import { quantile } from "./stats.ts";

export interface CompanyWorkload extends Workload {
  /** Of the implementation. */
  readonly name: string;
}

const [address = "", ...names] = process.argv.slice(2);
const implementations = new Map<string, Promise<LockImplementation>>(
  names.map((name) => [name, findImplementation(name).open(address)]),
);

serveCalls({
  perform: async ({ name, ...workload }: CompanyWorkload): Promise<Measured> => {
    const implementation = await implementations.get(name);
    if (implementation === undefined) throw new Error(`no implementation "${name}" here`);
    const { latencies, ...outcome } = await runWorkload(implementation, workload);
    return { ...outcome, p50: quantile(latencies, 0.5), p99: quantile(latencies, 0.99) };
  },
});
