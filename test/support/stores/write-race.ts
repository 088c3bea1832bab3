/**
 * Does a program judge conditional writes rightly? Four processes write at once, each round on one version: of these, exactly one
 * must succeed. A program under which two ever succeed proves nothing of a lock.
 */

import type { ChildProcess } from "node:child_process";
import { fork } from "node:child_process";
import { once } from "node:events";
import type { WriteResult } from "../../../src/drivers/document/store.ts";
import { builtFile } from "../built-file.ts";
import type { StoreAddress } from "./document-stores.ts";
import { AWS_ENVIRONMENT, createStore } from "./document-stores.ts";

export interface WriteOrder {
  readonly lane: number;
  readonly name: string;
  readonly version: string | null;
  readonly length: number;
}

export interface WriteReport {
  readonly lane: number;
  readonly result: WriteResult | { readonly error: string };
}

export interface RaceTally {
  readonly writes: number;
  /** How many rounds had so many successes: [without any, with one, with two, ...]. */
  readonly rounds: readonly number[];
  readonly errors: readonly string[];
}

const PROCESS_COUNT = 4;
/** Rounds that are under way at once, each on a document of its own. */
const LANE_COUNT = 4;
const BOUND_MS = 60_000;

/** So many writes that create documents, and as many that replace one. */
export async function raceWrites(
  address: StoreAddress,
  { writes, length }: { readonly writes: number; readonly length: number },
): Promise<{ readonly created: RaceTally; readonly replaced: RaceTally }> {
  const program = builtFile("build/test/support/processes/racing-writer.child.js");
  const store = createStore(address);
  const env = { ...process.env, ...AWS_ENVIRONMENT };
  const children = Array.from({ length: PROCESS_COUNT }, () => fork(program, [JSON.stringify(address)], { env }));
  try {
    await store.open?.(AbortSignal.timeout(BOUND_MS));
    await Promise.all(children.map((child) => once(child, "message")));
    const rounds = writes / PROCESS_COUNT;
    const run = startRounds(children, length);
    const created = await tally(rounds, run, (_, round) => ({ name: `new-${round}`, version: null }));
    const replaced = await tally(rounds, run, async (lane) => {
      const name = `replaced-${lane}`;
      const found = await store.read(name, AbortSignal.timeout(BOUND_MS));
      if (found !== null) return { name, version: found.version };
      const written = await store.write(name, new Uint8Array(10), null, AbortSignal.timeout(BOUND_MS));
      return { name, version: (written as { readonly version: string }).version };
    });
    return { created, replaced };
  } finally {
    await Promise.all(children.map(endChild));
    await store.close?.();
  }
}

type Round = (order: Omit<WriteOrder, "length">) => Promise<readonly WriteReport["result"][]>;

function startRounds(children: readonly ChildProcess[], length: number): Round {
  const waiting = new Map<string, (result: WriteReport["result"]) => void>();
  for (const [index, child] of children.entries()) {
    child.on("message", ({ lane, result }: WriteReport) => waiting.get(`${index} ${lane}`)?.(result));
  }
  return (order) =>
    Promise.all(
      children.map(
        (child, index) =>
          new Promise<WriteReport["result"]>((resolve) => {
            waiting.set(`${index} ${order.lane}`, resolve);
            child.send({ ...order, length } satisfies WriteOrder);
          }),
      ),
    );
}

type Target = Pick<WriteOrder, "name" | "version">;

async function tally(
  roundCount: number,
  run: Round,
  nextTarget: (lane: number, round: number) => Target | Promise<Target>,
): Promise<RaceTally> {
  const rounds: number[] = [0, 0];
  const errors: string[] = [];
  let next = 0;
  const lanes = Array.from({ length: LANE_COUNT }, async (_, lane) => {
    while (next < roundCount) {
      const results = await run({ lane, ...(await nextTarget(lane, next++)) });
      const successes = results.filter((result) => result !== "conflict" && "version" in result).length;
      rounds[successes] = (rounds[successes] ?? 0) + 1;
      for (const result of results) if (result !== "conflict" && "error" in result) errors.push(result.error);
    }
  });
  await Promise.all(lanes);
  return { writes: roundCount * PROCESS_COUNT, rounds, errors };
}

async function endChild(child: ChildProcess): Promise<void> {
  if (child.exitCode !== null || child.signalCode !== null) return;
  child.kill("SIGKILL");
  await once(child, "exit");
}
