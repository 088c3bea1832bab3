/**
 * The contract of drivers, as tests: `holdfast/conformance`. It is independent of the test runner: pass it your
 * `describe` and `test`. See docs/write-a-driver.md.
 */

import type { ConformanceOptions, TestStore } from "./options.ts";
import type { Runner } from "./topics.ts";
import { DRIVER_TOPICS, defineTests } from "./topics.ts";

export {
  type ChaosCommands,
  type ChaosDriver,
  type ChaosOptions,
  chaos,
  type PausedCall,
  type Verb,
} from "../testing/chaos/driver.ts";
export type { ConformanceOptions, OptionalVerb, Skip, TestStore } from "./options.ts";
export { type OracleOptions, oracle } from "./oracle.ts";
export type { Runner } from "./topics.ts";

/**
 * Defines the tests of the contract for one driver. Every test opens a fresh store and checks at its end that the store
 * is empty.
 * @throws TypeError if an option is invalid
 */
export function conformance<S extends TestStore>(runner: Runner, name: string, options: ConformanceOptions<S>): void {
  defineTests(runner, `${name} conforms`, DRIVER_TOPICS, options);
}
