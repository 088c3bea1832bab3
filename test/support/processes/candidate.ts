/** The test's end of processes that campaign for one leadership: their reports, and what must hold of all their terms. */

import { builtFile } from "../built-file.ts";
import { AWS_ENVIRONMENT } from "../stores/document-stores.ts";
import type { ProcessHarness, RunningProcess } from "./process-harness.ts";

/** One line of a candidate. Times are nanoseconds of the machine's monotonic clock. */
export interface CandidateReport {
  /** work: the signal of the term was looked at after `at`, and not aborted. */
  readonly event: "began" | "work" | "told" | "ended";
  readonly at: string;
  /** The number of the term in its process. */
  readonly term: number;
  /** null: the store has no tokens. */
  readonly token: string | null;
  /** Of "told": why the lock was lost, or "released". */
  readonly reason?: string;
}

export interface Candidate extends RunningProcess {
  reports(): readonly CandidateReport[];
}

/** A term as its process saw it. */
export interface ReportedTerm {
  readonly pid: number;
  readonly beganAt: bigint;
  /** When it was last known by the process's own clocks that the term lasted. */
  readonly believedAt: bigint;
  readonly token: bigint | null;
  /** null: the process was killed before. */
  readonly told: CandidateReport | null;
}

const PROGRAM = builtFile("build/test/support/processes/candidate.child.js");

export function startCandidate(harness: ProcessHarness, url: string): Candidate {
  const running = harness.startProgram([process.execPath, PROGRAM, url], { env: AWS_ENVIRONMENT });
  const reports = (): CandidateReport[] =>
    running
      .out()
      .split("\n")
      .slice(0, -1)
      .map((line) => JSON.parse(line) as CandidateReport);
  return { ...running, reports };
}

/** The candidate that leads, if it was not told otherwise and lives. @throws Error if a candidate has ended by itself */
export function findLeader(candidates: readonly Candidate[]): Candidate | undefined {
  const failed = candidates.find((candidate) => candidate.hasEnded() && candidate.process.signalCode === null);
  if (failed !== undefined) throw new Error(`a candidate ended: ${failed.err()}`);
  return candidates.find((candidate) => {
    const last = candidate.reports().at(-1);
    return !candidate.hasEnded() && (last?.event === "began" || last?.event === "work");
  });
}

/** All terms in the order in which they began. */
export function listTerms(candidates: readonly Candidate[]): ReportedTerm[] {
  return candidates
    .flatMap((candidate) => {
      const reports = candidate.reports();
      return reports
        .filter(({ event }) => event === "began")
        .map(({ at, term, token }) => {
          const own = reports.filter((report) => report.term === term);
          const believed = own.filter(({ event }) => event === "began" || event === "work").at(-1);
          return {
            pid: candidate.pid,
            beganAt: BigInt(at),
            believedAt: BigInt(believed?.at ?? at),
            token: token === null ? null : BigInt(token),
            told: own.find(({ event }) => event === "told") ?? null,
          };
        });
    })
    .sort((a, b) => (a.beganAt < b.beganAt ? -1 : 1));
}

/** What must not have happened: two leaders at a time by their own clocks, or a token that does not rise. */
export function findFaults(terms: readonly ReportedTerm[]): string[] {
  return terms.slice(1).flatMap((term, index) => {
    const earlier = terms.slice(0, index + 1);
    const overlapping = earlier.filter(({ believedAt }) => believedAt >= term.beganAt);
    const higher = earlier.filter(({ token }) => token !== null && term.token !== null && token >= term.token);
    const describe = ({ pid, token }: ReportedTerm): string => `process ${pid} with token ${token}`;
    return [
      ...overlapping.map((other) => `${describe(other)} led while ${describe(term)} began`),
      ...higher.map((other) => `${describe(term)} began after ${describe(other)}`),
    ];
  });
}
