/** The options of the document driver, validated first, since they may come from JavaScript. */

import type { Clock } from "../../util/clock.ts";
import {
  clockRule,
  countRule,
  isObject,
  millisecondsRule,
  requireValid,
  validateOptions,
} from "../../util/validate.ts";
import { tokenBaseRule } from "../revision-tokens.ts";
import type { DocumentStore } from "./store.ts";

/** How the locks are kept in the store. */
export interface DocumentDriverOptions {
  /**
   * Over how many documents the keys are spread: of the processes that use one document, one writes after the other. It is decided when
   * the store is first used, and compared from then on. Default: as many as the store has, else 16.
   */
  readonly documents?: number;
  /** How often the first waiting claim of a queue reads, and the others more seldom, if the store has no watch(). Default 1,000. */
  readonly pollMs?: number;
  /** How long a call to the store may take. Default 2,000. */
  readonly callTimeoutMs?: number;
  /** Added to every token: for locks that were moved here from a store with higher tokens. Default 0n. */
  readonly tokenBase?: bigint;
  /** The clock, for tests. */
  readonly clock?: Clock;
}

const MAX_DOCUMENTS = 1_024;

/** @throws TypeError naming the option that is wrong or unknown */
export function validateDocumentOptions(store: DocumentStore, options: DocumentDriverOptions): void {
  requireValid(store, "store", (value) =>
    isObject(value) && typeof value.read === "function" && typeof value.write === "function"
      ? null
      : "a store with read() and write()",
  );
  validateOptions("document", options, {
    documents: countRule(MAX_DOCUMENTS),
    pollMs: millisecondsRule(),
    callTimeoutMs: millisecondsRule(),
    tokenBase: tokenBaseRule,
    clock: clockRule,
  });
}
