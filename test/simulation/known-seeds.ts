/** Seeds that found faults, played in every run with their revision of the simulation (`revision`, see event-queue.ts). */

export interface KnownSeed {
  readonly seed: number;
  readonly revision: number;
  readonly found: string;
}

export const KNOWN_SEEDS: readonly KnownSeed[] = [
  { seed: 116991, revision: 1, found: "release() said false after a sleep during the call, for a lock that was ours" },
  {
    seed: 127169,
    revision: 1,
    found: "release() over a dead line settled seconds after the store had forgotten the claim",
  },
  {
    seed: 121556,
    revision: 1,
    found: "a session known by the journal alone was not awaited after the next crash: two holders",
  },
  { seed: 123380, revision: 1, found: "the same, with two long leases and three crashes" },
  {
    seed: 196,
    revision: 1,
    found: "the place of a revoked holder who had not let go was free after a crash: two holders",
  },
  {
    seed: 224056,
    revision: 2,
    found: "a machine that slept took back what others had had, from a server started anew",
  },
  {
    seed: 374790,
    revision: 2,
    found: "a release was given up before a lease that an unanswered detach had lengthened",
  },
  { seed: 370871, revision: 2, found: "a wait's last look never settled after its client was closed" },
];
