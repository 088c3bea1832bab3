/** Seeds that found faults, played in every run as they were then: `extras` were added to the simulation later. */

export interface KnownSeed {
  readonly seed: number;
  readonly extras?: true;
  readonly found: string;
}

export const KNOWN_SEEDS: readonly KnownSeed[] = [
  { seed: 116991, found: "release() said false after a sleep during the call, for a lock that was ours" },
  { seed: 127169, found: "release() over a dead line settled seconds after the store had forgotten the claim" },
  { seed: 121556, found: "a session known by the journal alone was not awaited after the next crash: two holders" },
  { seed: 123380, found: "the same, with two long leases and three crashes" },
  { seed: 196, found: "the place of a revoked holder who had not let go was free after a crash: two holders" },
  {
    seed: 224056,
    extras: true,
    found: "a machine that slept took back what others had had, from a server started anew",
  },
  {
    seed: 374790,
    extras: true,
    found: "a release was given up before a lease that an unanswered detach had lengthened",
  },
  { seed: 370871, extras: true, found: "a wait's last look never settled after its client was closed" },
];
