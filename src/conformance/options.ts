/** The suite's options for a driver. */

import type { Driver, Traits } from "../spi/driver.ts";

/** A fresh, empty store for one test. */
export interface TestStore {
  /** Another client of the store: a separate driver, not opened yet. */
  driver(): Driver | Promise<Driver>;
  /**
   * Describes what is wrong in the store's own state, which it reads without a driver; empty if nothing is. Called
   * after each command of the oracle, after each call that reached the store through a chaos driver (while others are
   * in flight), and at the end of a test, when no claim is left. Optional.
   */
  inspect?(): Promise<readonly string[]>;
  /** Closes the store; called after the test, when all its drivers are closed. */
  close?(): Promise<void>;
}

/** A verb that a driver may lack. */
export type OptionalVerb = "detach" | "revoke";

/** A test that this driver cannot pass, and why. */
export interface Skip {
  /** The test's name, without the names of its groups. */
  readonly test: string;
  readonly reason: string;
}

/** How to test a driver. */
export interface ConformanceOptions<S extends TestStore = TestStore> {
  /** Makes a fresh store. Called for every test. */
  open(): Promise<S>;
  /** Makes a store that grants nothing new for at least 10 s. Default: the driver's store never pauses. */
  readonly openPaused?: () => Promise<S>;
  /** Tests to skip. A name that no test has is a failure. */
  readonly skip?: readonly Skip[];
  /**
   * Where this driver's traits differ from the default; a test compares them with the driver's own. Default: every
   * trait, leases of claims, no sessions.
   */
  readonly traits?: Partial<Omit<Traits, "durability">>;
  /** The optional verbs it has. Default: none. */
  readonly verbs?: readonly OptionalVerb[];
  /**
   * Restarts the store of a running test. Acknowledged claims may be lost, but tokens must still rise. Default: not
   * tested.
   */
  readonly restart?: (store: S) => Promise<void>;
  /** Scales every lease and every timeout in the tests: more than 1 for a slow store. Default 1. */
  readonly timeScale?: number;
  /** How many keys the tests of idle keys use. Default 10,000. */
  readonly keys?: number;
  /**
   * Random runs: the first seed, how many, and commands in each. Default 1, 5 and 60. Every seed is a separate test.
   */
  readonly random?: { readonly from?: number; readonly seeds?: number; readonly steps?: number };
}

/** Options with their defaults: what topics read to decide which tests apply. */
export interface ConformanceSettings {
  readonly traits: Omit<Traits, "durability">;
  readonly verbs: readonly OptionalVerb[];
  readonly timeScale: number;
  readonly keys: number;
  readonly random: { readonly from: number; readonly seeds: number; readonly steps: number };
  /** Opens the store of a test. */
  readonly open: () => Promise<TestStore>;
  readonly openPaused: (() => Promise<TestStore>) | undefined;
  readonly restart: ((store: TestStore) => Promise<void>) | undefined;
}

/** @throws TypeError if an option is invalid */
export function parseConformanceOptions<S extends TestStore>(options: ConformanceOptions<S>): ConformanceSettings {
  const { traits = {}, verbs = [], timeScale = 1, keys = 10_000, random = {}, restart } = options;
  if (!(timeScale > 0)) throw new TypeError("timeScale must be above 0");
  return {
    traits: {
      lease: { claim: true },
      manyKeys: true,
      permits: "any",
      fencing: true,
      fifo: true,
      recall: false,
      ...traits,
    },
    verbs,
    timeScale,
    keys,
    random: { from: 1, seeds: 5, steps: 60, ...random },
    open: () => options.open(),
    openPaused: options.openPaused,
    restart: restart === undefined ? undefined : (store) => restart(store as S),
  };
}
