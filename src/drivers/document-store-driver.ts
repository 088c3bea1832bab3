/** What all drivers for a store with a conditional write have besides their store. */

import { isFatalError } from "../errors.ts";
import type { Driver } from "../spi/driver.ts";
import { backoffMs } from "../util/backoff.ts";
import { systemClock } from "../util/clock.ts";
import type { Duration } from "../util/duration.ts";
import { describeValue } from "../util/duration.ts";
import { keepProcessAlive, sleep } from "../util/timeout.ts";
import { noProblem, timeoutRule } from "../util/validate.ts";
import { toConnectTimeoutMs } from "./connect-timeout.ts";
import { documentDriver } from "./document/driver.ts";
import type { DocumentDriverOptions } from "./document/options.ts";
import type { DocumentStore } from "./document/store.ts";

export interface StoreDriverOptions extends DocumentDriverOptions {
  /** How long `open()` tries to reach the store. Default 5 s. */
  readonly connectTimeout?: Duration;
}

type OptionName = keyof StoreDriverOptions;

/** The document driver checks the values of the others. */
export const STORE_DRIVER_RULES: Readonly<Record<OptionName, (value: unknown) => string | null>> = {
  documents: noProblem,
  pollMs: noProblem,
  callTimeoutMs: noProblem,
  tokenBase: noProblem,
  clock: noProblem,
  connectTimeout: timeoutRule("connectTimeout"),
};

/** The longest delay before the next attempt to open the store. */
const MAX_DELAY_MS = 500;

/** @param options may have others, which are the store's */
export function storeDriver(store: DocumentStore, options: StoreDriverOptions): Driver {
  const { documents, pollMs, callTimeoutMs, tokenBase, clock = systemClock, connectTimeout } = options;
  const driver = documentDriver(store, {
    ...(documents !== undefined && { documents }),
    ...(pollMs !== undefined && { pollMs }),
    ...(callTimeoutMs !== undefined && { callTimeoutMs }),
    ...(tokenBase !== undefined && { tokenBase }),
    clock,
  });
  const timeoutMs = toConnectTimeoutMs(connectTimeout);

  /** One attempt lasts at most as long as a call: the library, which may take longer to load, is there for the next one. */
  const openUntil: Driver["open"] = async (events) => {
    const end = clock.now() + timeoutMs;
    for (let failures = 1; ; failures++) {
      try {
        return await driver.open(events);
      } catch (error) {
        const remainingMs = end - clock.now();
        if (isFatalError(error) || remainingMs < 1) throw error;
        await sleep(clock, Math.min(backoffMs(failures, Math.random(), MAX_DELAY_MS), remainingMs / 2));
      }
    }
  };

  return { ...driver, open: (events) => keepProcessAlive(clock, () => openUntil(events)) };
}

const DOCUMENT_PARAMETERS: readonly string[] = ["documents", "pollMs", "tokenBase"];

/**
 * The parameters of a url: those with these names, which are texts, and those of the document driver.
 * @throws TypeError naming the parameter
 */
export function parseStoreParameters<Name extends string>(
  scheme: string,
  query: string,
  names: readonly Name[],
): { readonly [N in Name]?: string } & StoreDriverOptions {
  const parameters = new URLSearchParams(query);
  const values: Record<string, string | number | bigint> = {};
  for (const [name, value] of parameters) {
    if ((names as readonly string[]).includes(name)) values[name] = value;
    else if (DOCUMENT_PARAMETERS.includes(name)) values[name] = parseCount(name, value);
    else throw new TypeError(`url has no parameter ${describeValue(name)} for ${scheme}:`);
  }
  return values as { readonly [N in Name]?: string } & StoreDriverOptions;
}

function parseCount(name: string, value: string): number | bigint {
  if (!/^\d{1,18}$/.test(value)) throw new TypeError(`url: ${name} must be a number, not ${describeValue(value)}`);
  return name === "tokenBase" ? BigInt(value) : Number(value);
}
