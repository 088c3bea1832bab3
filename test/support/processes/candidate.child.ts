/**
 * A process that campaigns for a leadership, again and again, and works in each term until it is told to stop. SIGUSR2 makes it
 * resign. What happens is a line of JSON on its output, with the time of the machine's monotonic clock.
 */

import { setTimeout as delay } from "node:timers/promises";
import type { Term } from "../../../src/index.ts";
import type { CandidateReport } from "./candidate.ts";
import { connectStore, ELECTION } from "./candidate-store.ts";

const WORK_MS = 10;

const locks = await connectStore(process.argv[2] as string);
const election = locks.leader(ELECTION, { ttl: "1s", label: `candidate ${process.pid}` });
process.on("SIGUSR2", () => election.resign());

const report = (line: CandidateReport): void => void process.stdout.write(`${JSON.stringify(line)}\n`);
const now = (): string => String(process.hrtime.bigint());

let count = 0;
for await (const term of election) {
  // the time before the question: a stop of the process between the two is no time in which it leads
  let at = now();
  if (term.signal.aborted) continue;
  const common = { term: ++count, token: readToken(term) };
  term.signal.addEventListener("abort", () => {
    const { reason } = term.signal.reason as { readonly reason: string };
    report({ ...common, event: "told", at: now(), reason });
  });
  // with the listener in place: the test may stop the process as soon as it has read this line
  report({ ...common, event: "began", at });
  for (;;) {
    await delay(WORK_MS);
    at = now();
    if (term.signal.aborted) break;
    report({ ...common, event: "work", at });
  }
  report({ ...common, event: "ended", at: now() });
}

/** null on a store without tokens. */
function readToken(term: Term): string | null {
  try {
    return String(term.token);
  } catch (error) {
    if ((error as { readonly code?: unknown }).code === "LOCK_UNSUPPORTED") return null;
    throw error;
  }
}
