/** What the suite is told of a driver, and how topics hand it their tests. */

import type { Driver, Traits } from "../spi/driver.ts";
import type { TestContext } from "./context.ts";

/** A fresh, empty store that one test has for itself. */
export interface TestStore {
  /** Another client of it: a driver of its own, not opened yet. */
  driver(): Driver | Promise<Driver>;
  /**
   * What is wrong in the store's own state, in words, read past every driver; empty if nothing is. Called after each
   * command of the oracle, after each call that chaos let through (while others are under way), and when a test is over
   * and has left no claim. Not called where a store has none.
   */
  inspect?(): Promise<readonly string[]>;
  /** Lets go of the store; called when the test is over and all its drivers are closed. */
  close?(): Promise<void>;
}

/** A verb that a driver may leave out. */
export type OptionalVerb = "detach" | "revoke";

/** A test that this driver cannot pass, and why. */
export interface Skip {
  /** The test's name, without those of its groups. */
  readonly test: string;
  readonly reason: string;
}

/** How to test a driver. */
export interface ConformanceOptions<S extends TestStore = TestStore> {
  /** Makes a fresh store. Called once for every test. */
  open(): Promise<S>;
  /** Makes a store that grants nothing new to anyone for at least 10 s more. Default: the driver's store never pauses. */
  readonly openPaused?: () => Promise<S>;
  /** Tests to leave out. A name that no test has is a failure. */
  readonly skip?: readonly Skip[];
  /** What this driver lacks; a test checks that it says the same of itself. Default: every trait, leases of claims, no sessions. */
  readonly traits?: Partial<Omit<Traits, "survives">>;
  /** The optional verbs it has. Default: none. */
  readonly verbs?: readonly OptionalVerb[];
  /** Restarts the store of a running test; what was acknowledged may be lost, tokens must still rise. Default: not tried. */
  readonly restart?: (store: S) => Promise<void>;
  /** Stretches every lease and every bound in the tests: more than 1 for a slow store. Default 1. */
  readonly timeScale?: number;
  /** Over how many keys the tests for what idle keys leave behind go. Default 10,000. */
  readonly keys?: number;
  /** Random runs: the first seed, how many, and commands in each. Default 1, 5 and 60. Every seed is a test of its own. */
  readonly random?: { readonly from?: number; readonly seeds?: number; readonly steps?: number };
}

/** Options with their defaults: what topics read to decide which tests apply. */
export interface ConformanceSettings {
  readonly traits: Omit<Traits, "survives">;
  readonly verbs: readonly OptionalVerb[];
  readonly timeScale: number;
  readonly keys: number;
  readonly random: { readonly from: number; readonly seeds: number; readonly steps: number };
  /** The store of every test is opened, and restarted where it can be. */
  readonly open: () => Promise<TestStore>;
  readonly openPaused: (() => Promise<TestStore>) | undefined;
  readonly restart: ((store: TestStore) => Promise<void>) | undefined;
}

/** Registers one test. It gets a scene of its own; when it is over, nothing may be left in the store. */
export type DefineTest = (name: string, body: (scene: TestContext) => Promise<void>) => void;

/** Registers the tests of one topic that apply to this subject. */
export type Topic = (check: DefineTest, subject: ConformanceSettings) => void;

/** @throws TypeError where options make no sense */
export function parseConformanceOptions<S extends TestStore>(options: ConformanceOptions<S>): ConformanceSettings {
  const { traits = {}, verbs = [], timeScale = 1, keys = 10_000, random = {}, restart } = options;
  if (!(timeScale > 0)) throw new TypeError("timeScale must be above 0");
  return {
    traits: { lease: { claim: true }, manyKeys: true, permits: "any", fencing: true, fifo: true, ...traits },
    verbs,
    timeScale,
    keys,
    random: { from: 1, seeds: 5, steps: 60, ...random },
    open: () => options.open(),
    openPaused: options.openPaused,
    restart: restart === undefined ? undefined : (store) => restart(store as S),
  };
}
